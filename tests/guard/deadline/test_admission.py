"""One decision at a time, where ``test_promises.py`` looks at many."""

from __future__ import annotations

import pytest

from zerolayer.guard.deadline.admission import Admission, Grant, Wish
from zerolayer.guard.deadline.booking import Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.limits import Limits
from zerolayer.guard.deadline.tickets import Asker
from zerolayer.model.cost import CostTable
from zerolayer.wire.schema import Tier

MS = 1_000_000
CONTRACT = Limits(5_000 * MS, 250 * MS, 60_000 * MS)


@pytest.mark.parametrize("freak_ms", [500, 9_000, 30_000])
@pytest.mark.parametrize("rows", [0, 1, 15])
def test_whoever_sets_no_limits_is_admitted_on_an_idle_engine_whatever_a_prompt_once_took(
    freak_ms: int, rows: int
) -> None:
    """A machine that stood still must not make a server refuse everybody: what is refused is never measured again."""
    cost = CostTable(slots=16, chunk_tokens=128)
    for _ in range(3):
        cost.observe(decode_rows=16, elapsed_ns=45 * MS)
    cost.observe(decode_rows=rows, prefill_tokens=50, elapsed_ns=freak_ms * MS)
    calendar = Calendar(16, lambda: 10**12, cost.prices)
    admission = Admission(calendar, cost, lambda: 10**12, "")
    price = cost.prices().chunk(50)
    work = Work(1, price, price, 16)
    wish = Wish(work, work, work, admission.promised(CONTRACT), Tier.DEFAULT, 1)
    assert isinstance(admission.ask(wish, Asker(1)), Grant)
