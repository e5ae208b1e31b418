"""What the calendar is told of a step."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from zerolayer.front.held import HeldClients
from zerolayer.front.pace import Pace
from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.model.cost import CostTable
from zerolayer.model.letters import StepReport

MS = 1_000_000
CHUNK, CHUNKS, TOKENS = 128, 3, 10


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_nothing_of_a_prompt_waits_any_more_when_all_that_was_not_kept_is_read(kept) -> None:
    cost = CostTable(slots=2, chunk_tokens=CHUNK)
    for _ in range(8):
        cost.observe(decode_rows=1, elapsed_ns=5 * MS)
        cost.observe(decode_rows=1, prefill_tokens=CHUNK, elapsed_ns=9 * MS)
    calendar = Calendar(2, lambda: 0, cost.prices)
    admission = Admission(calendar, cost, lambda: 0, "")
    guard = SimpleNamespace(
        admission=admission, slots=calendar, chunk_tokens=CHUNK, drafts=SimpleNamespace(number=2), books=None
    )
    held = HeldClients(guard, lambda: 0, MagicMock())
    pace = Pace(guard, MagicMock(), held, MagicMock(), MagicMock(), lambda: 0)
    full_ns = cost.prices().chunk_ns[-1]
    asked = Work(CHUNKS, CHUNKS * full_ns, full_ns, TOKENS)
    slot = calendar.claim(asked, Terms(0, 5_000 * MS, 250 * MS, 60_000 * MS))
    calendar.confirm(slot, asked)
    now_ns = 0
    for step in range(CHUNKS - kept):
        now_ns += 9 * MS
        shared = ((slot, kept * CHUNK),) if kept and not step else ()
        report = StepReport(now_ns - 9 * MS, now_ns, "greedy", prefill_slot=slot, prefill_tokens=CHUNK, shared=shared)
        pace.on_step(report)
    prices = cost.prices()
    calendar.is_feasible()  # computes the ends
    assert calendar.ends()[slot][0] == now_ns + prices.reserve_ns + (TOKENS - 1) * prices.step_ns
