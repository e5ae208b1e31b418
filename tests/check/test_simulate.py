"""The simulator: a small fleet by hand, its invariants by property, its formula by the server's own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer import cli
from zerolayer.check.errors import InputFileError
from zerolayer.check.simulate import Cost, Demand, durations_ms, find_nodes, read_cost, simulate
from zerolayer.model.cost import CostTable

COST = Cost(name="toy", slots=2, decode_ms=10.0, mixed_ms=20.0, chunk_tokens=100, slot_tokens=1000, price_per_hour=3.6)
TABLE = """name = "toy"
slots = 2
decode_ms = 10
mixed_ms = 20
chunk_tokens = 100
slot_tokens = 1000
price_per_hour = 3.6
"""


def arrivals(*at_ms: float, prompt: int = 100, output: int = 9) -> Demand:
    """Each request of one chunk and nine tokens holds its slot for 20 + 8 x 10 = 100 ms."""
    n = len(at_ms)
    return Demand(np.array(at_ms), np.full(n, float(prompt)), np.full(n, float(output)))


def test_a_request_takes_a_free_slot_at_once_and_the_next_one_is_booked() -> None:
    seen = simulate(arrivals(0, 0, 1, 250), COST, 1)
    assert (seen.met, seen.booked, seen.refused) == (3, 1, 0)


def test_without_bookings_it_is_refused() -> None:
    seen = simulate(arrivals(0, 0, 1, 250), COST, 1, book=False)
    assert (seen.met, seen.booked, seen.refused) == (3, 0, 1)


def test_a_booking_that_would_end_too_late_is_refused_at_once() -> None:
    assert simulate(arrivals(0, 0, 1), COST, 1, deadline_ms=198.9).refused == 1
    assert simulate(arrivals(0, 0, 1), COST, 1, deadline_ms=199.1).booked == 1


def test_work_that_alone_is_longer_than_its_deadline_is_missed() -> None:
    assert simulate(arrivals(0), COST, 1, deadline_ms=99).missed == 1


def test_work_that_fits_no_slot_is_infeasible() -> None:
    assert simulate(arrivals(0, prompt=990, output=11), COST, 1).infeasible == 1


def test_utilisation_and_price_are_those_of_the_whole_span() -> None:
    seen = simulate(arrivals(0, 0), COST, 1)
    assert seen.utilisation == pytest.approx(1.0)
    assert seen.price == pytest.approx(3.6 * 100 / 3_600_000)
    assert seen.price_per_1000_tokens == pytest.approx(1000 * seen.price / 18)


@given(
    gaps=st.lists(st.floats(0, 300), min_size=1, max_size=60),
    nodes=st.integers(1, 5),
    deadline=st.floats(50, 1000),
    book=st.booleans(),
)
def test_every_request_has_one_fate_and_no_slot_is_held_twice(
    gaps: list[float], nodes: int, deadline: float, book: bool
) -> None:
    seen = simulate(arrivals(*np.cumsum(gaps)), COST, nodes, deadline, book=book)
    assert seen.met + seen.booked + seen.missed + seen.refused + seen.infeasible == seen.arrivals == len(gaps)
    assert 0 <= seen.utilisation <= 1 + 1e-9


def test_the_fewest_nodes_are_found() -> None:
    work = arrivals(*np.arange(0, 2000, 5.0))  # 200/s of 100 ms each: 20 slots
    seen = find_nodes(work, COST, 0.99, 150.0)
    assert seen is not None
    assert seen.served_share >= 0.99 > simulate(work, COST, seen.nodes - 1, 150.0).served_share


def test_a_target_that_no_fleet_reaches_is_none() -> None:
    assert find_nodes(arrivals(0, 100), COST, 0.99, deadline_ms=50.0) is None


def test_the_duration_counts_the_servers_own_steps() -> None:
    """Where a chunk costs nothing extra, the server promises the same steps at its rate, and one reserve."""
    server = CostTable(slots=2, chunk_tokens=100)
    server.observe(decode_rows=2, elapsed_ns=10_000_000)
    server.observe(decode_rows=2, prefill_tokens=100, elapsed_ns=10_000_000)
    cost = Cost(name="", slots=2, decode_ms=10.0, mixed_ms=10.0, chunk_tokens=100, slot_tokens=9999)
    ours = durations_ms(cost, arrivals(0, prompt=250, output=40))[0]
    prices = server.prices()
    promised_ns = server.predict_ns(prompt_tokens=250, max_tokens=40) - prices.reserve_ns
    assert promised_ns / 1e6 == pytest.approx(prices.rate * ours, rel=1e-3)


def test_erlangs_loss_formula_is_met() -> None:
    """Poisson arrivals, no bookings: the refused share of c slots is Erlang's B, whatever the service times."""
    rng = np.random.default_rng(1)
    n, slots, load = 200_000, 8, 6.0
    work = Demand(np.cumsum(rng.exponential(100 / load, n)), np.full(n, 100.0), np.full(n, 9.0))
    seen = simulate(work, Cost(**{**_fields(), "slots": slots}), 1, book=False)
    erlang = (load**slots / math.factorial(slots)) / sum(load**k / math.factorial(k) for k in range(slots + 1))
    assert seen.refused / n == pytest.approx(erlang, abs=0.004)


def _fields() -> dict[str, object]:
    return {name: getattr(COST, name) for name in COST.__struct_fields__}


@pytest.mark.parametrize(
    "text", ["", "slots = 1", TABLE + "colour = 1", TABLE.replace("slots = 2", "slots = 0"), "\x00"]
)
def test_what_is_no_cost_table_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cost.toml"
    path.write_text(text)
    with pytest.raises(InputFileError):
        read_cost(path)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    lines = [json.dumps({"timestamp": i * 5, "input_length": 100, "output_length": 9}) for i in range(400)]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    (tmp_path / "toy.toml").write_text(TABLE)
    (tmp_path / "fast.toml").write_text(TABLE.replace("toy", "fast").replace("= 10\n", "= 5\n").replace("3.6", "9"))
    return [
        "--trace",
        str(tmp_path / "trace.jsonl"),
        "--cost",
        str(tmp_path / "toy.toml"),
        "--cost",
        str(tmp_path / "fast.toml"),
    ]


def test_the_command_compares_hardware(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *files, "--deadline-ms", "150", "--target", "0.99", "--json"]) == 0
    toy, fast = json.loads(capsys.readouterr().out)["outcomes"]
    assert (toy["hardware"], fast["hardware"]) == ("toy", "fast")
    assert toy["nodes"] > fast["nodes"]


def test_the_command_prints_a_table_and_draws(files: list[str], tmp_path: Path, capsys) -> None:
    assert cli.main(["simulate", *files, "--nodes", "3", "--html", str(tmp_path / "fleet.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["hardware", "nodes", "met"]
    assert (tmp_path / "fleet.html").read_text().count("<svg") == 2


def test_an_unreachable_target_is_exit_4(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *files, "--deadline-ms", "20"]) == 4
    assert "no number of nodes" in capsys.readouterr().out
