"""The simulator: a small fleet by hand, its invariants by property, its formula by the server's own."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerolayer import cli
from zerolayer.check.cost_table import Cost, to_toml
from zerolayer.check.simulate import Demand, durations_ms, find_nodes, rules, simulate
from zerolayer.model.cost import CostTable

COST = Cost(name="toy", slots=2, decode_ms=10.0, mixed_ms=20.0, chunk_tokens=100, slot_tokens=1000, price_per_hour=3.6)
TABLE = to_toml(COST)


def arrivals(*at_ms: float, prompt: int = 100, output: int = 9) -> Demand:
    """Each request of one chunk and nine tokens holds its slot for 20 + 8 x 10 = 100 ms."""
    n = len(at_ms)
    return Demand(np.array(at_ms), np.full(n, float(prompt)), np.full(n, float(output)))


def test_a_request_takes_a_free_slot_at_once_and_the_next_one_is_booked() -> None:
    seen = simulate(arrivals(0, 0, 1, 400), COST, 1)
    assert (seen.met, seen.booked, seen.refused) == (3, 1, 0)


def test_a_client_that_never_comes_back_is_refused_for_good() -> None:
    seen = simulate(arrivals(0, 0, 1, 400), COST, 1, rules(retries=0))
    assert (seen.met, seen.booked, seen.refused) == (3, 0, 1)


def test_what_a_retry_cannot_bring_in_time_is_refused() -> None:
    assert simulate(arrivals(0, 0, 1), COST, 1, rules(170)).refused == 1
    assert simulate(arrivals(0, 0, 1), COST, 1).booked == 1


def test_work_that_is_longer_than_its_limits_on_an_idle_node_is_infeasible() -> None:
    assert simulate(arrivals(0), COST, 1, rules(99)).infeasible == 1
    assert simulate(arrivals(0), COST, 1, rules(first_token_ms=19)).infeasible == 1


def test_work_that_fits_no_slot_is_infeasible() -> None:
    assert simulate(arrivals(0, prompt=990, output=11), COST, 1).infeasible == 1


def test_a_free_slot_of_any_node_is_found() -> None:
    assert simulate(arrivals(0, 0, 0, 0, 0, 0), COST, 3).met == 6


def test_more_slots_make_longer_steps() -> None:
    more = Cost(**{**_fields(), "row_ms": 0.5}).with_slots(6)
    assert (more.slots, more.decode_ms, more.mixed_ms) == (6, 12.0, 22.0)


def test_utilisation_and_price_are_those_of_the_whole_span() -> None:
    seen = simulate(arrivals(0, 0), COST, 1)
    # Two prompts of one chunk each, one after the other, then eight steps: 20 + 20 + 7 x 10 and 10 more for the second.
    assert seen.hours * 3_600_000 == pytest.approx(120)
    assert seen.utilisation == pytest.approx((110 + 120) / 240)
    assert seen.price == pytest.approx(3.6 * 120 / 3_600_000)
    assert seen.price_per_1000_tokens == pytest.approx(1000 * seen.price / 18)
    assert seen.price_per_served == pytest.approx(seen.price / 2)


@settings(max_examples=25, deadline=None)
@given(
    gaps=st.lists(st.floats(0, 300), min_size=1, max_size=40),
    nodes=st.integers(1, 4),
    deadline=st.floats(120, 2000),
    retries=st.integers(0, 3),
)
def test_every_request_has_one_fate(gaps: list[float], nodes: int, deadline: float, retries: int) -> None:
    seen = simulate(arrivals(*np.cumsum(gaps)), COST, nodes, rules(deadline, retries=retries))
    assert seen.met + seen.booked + seen.missed + seen.refused + seen.infeasible == seen.arrivals == len(gaps)
    assert seen.missed == 0
    assert 0 <= seen.utilisation <= 1 + 1e-9


def test_the_fewest_nodes_are_found() -> None:
    work = arrivals(*np.arange(0, 500, 5.0))  # 200/s of 100 ms each: at least 20 slots
    seen = find_nodes(work, COST, 0.99, rules(300))
    assert seen is not None
    assert seen.nodes >= 10
    assert seen.served_share >= 0.99 > simulate(work, COST, seen.nodes - 1, rules(300)).served_share


def test_a_target_that_no_fleet_reaches_is_none() -> None:
    assert find_nodes(arrivals(0, 100), COST, 0.99, rules(50)) is None


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
    """Poisson arrivals, nobody comes back: the refused share of c slots is Erlang's B, whatever the service times."""
    rng = np.random.default_rng(1)
    n, slots, load = 20_000, 8, 6.0
    work = Demand(np.cumsum(rng.exponential(1000 / load, n)), np.full(n, 100.0), rng.geometric(1 / 100, n) * 1.0)
    cost = Cost(**{**_fields(), "slots": slots, "mixed_ms": 10.001})
    seen = simulate(work, cost, 1, rules(retries=0))
    erlang = (load**slots / math.factorial(slots)) / sum(load**k / math.factorial(k) for k in range(slots + 1))
    assert seen.refused / n == pytest.approx(erlang, abs=0.015)


def _fields() -> dict[str, object]:
    return {name: getattr(COST, name) for name in COST.__struct_fields__}


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    lines = [json.dumps({"timestamp": i * 5, "input_length": 100, "output_length": 9}) for i in range(100)]
    (tmp_path / "trace.jsonl").write_text("\n".join(lines))
    (tmp_path / "toy.toml").write_text(TABLE)
    (tmp_path / "fast.toml").write_text(TABLE.replace("toy", "fast").replace("= 10.0\n", "= 5.0\n").replace("3.6", "9"))
    return [
        "--trace",
        str(tmp_path / "trace.jsonl"),
        "--cost",
        str(tmp_path / "toy.toml"),
        "--cost",
        str(tmp_path / "fast.toml"),
    ]


def test_the_command_compares_hardware(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *files, "--deadline-ms", "400", "--find", "nodes", "--json"]) == 0
    toy, fast = json.loads(capsys.readouterr().out)["outcomes"]
    assert (toy["hardware"], fast["hardware"]) == ("toy", "fast")
    assert toy["nodes"] > fast["nodes"]
    assert toy["price_per_hour"] == pytest.approx(3.6 * toy["nodes"])
    assert 0 < toy["price_per_1000_tokens"] < toy["price_per_served"] * 1000 / 9 + 1e-9


def test_the_command_prints_a_table_and_draws(files: list[str], tmp_path: Path, capsys) -> None:
    assert cli.main(["simulate", *files, "--nodes", "3", "--html", str(tmp_path / "fleet.html")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["hardware", "speed", "slots"]
    assert (tmp_path / "fleet.html").read_text().count("<svg") == 3  # by price, and each by nodes


def test_of_several_kinds_the_cheapest_that_reaches_the_target_is_named(files: list[str], capsys) -> None:
    assert cli.main(["simulate", *files, "--deadline-ms", "400", "--target", "0.9"]) == 0
    *rows, best = capsys.readouterr().out.splitlines()
    prices = {row.split()[0]: float(row.split()[-3]) for row in rows[1:]}
    assert best.startswith("90 % in time for the least: " + min(prices, key=prices.__getitem__))


def test_an_unreachable_target_is_exit_4(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *files, "--deadline-ms", "20"]) == 4
    assert "no number of nodes" in capsys.readouterr().out


def test_requests_longer_than_a_slot_are_counted_with_the_slot_that_would_hold_enough(files: list[str], capsys) -> None:
    trace = Path(files[1])
    long = [json.dumps({"timestamp": i, "input_length": 1000 + i, "output_length": 9}) for i in range(5)]
    trace.write_text("\n".join([*trace.read_text().splitlines(), *long]))
    assert cli.main(["simulate", *files[:4], "--target", "0.97"]) == 4
    last = capsys.readouterr().out.splitlines()[-1]
    assert "5 of 105 requests (4.76%)" in last
    assert "up to 1013 tokens, and slot_tokens is 1000; 1010 would hold 97 %" in last  # 102 of the 105
    assert "--slot-tokens" in last
    Path(files[3]).write_text(TABLE.replace("slot_tokens = 1000", "slot_tokens = 1010"))
    assert cli.main(["simulate", *files[:4], "--target", "0.97"]) == 0
    assert "never served" not in capsys.readouterr().out


def test_a_plan_that_fails_by_its_limits_says_so(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *files[:4], "--deadline-ms", "20"]) == 4
    last = capsys.readouterr().out.splitlines()[-1]
    assert "over their limits even on an idle node: 100 of 100 requests" in last
    assert "--deadline-ms" in last


def test_what_is_never_served_is_told_to_programs(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path(files[3]).write_text(TABLE.replace("slot_tokens = 1000", "slot_tokens = 100"))
    assert cli.main(["simulate", *files[:4], "--json"]) == 4
    (told,) = json.loads(capsys.readouterr().out)["never_served"]
    names = ("hardware", "too_long", "longest_tokens", "needed_slot_tokens", "too_slow")
    assert [told[name] for name in names] == ["toy", 100, 109, 109, 0]


def test_the_command_tries_each_speed_with_each_number_of_slots_and_nodes(files: list[str], capsys) -> None:
    arguments = [*files[:4], "--nodes", "1,4", "--slots", "2,8", "--speed", "0.5,1", "--json"]
    assert cli.main(["simulate", *arguments]) == 0
    seen = json.loads(capsys.readouterr().out)["outcomes"]
    assert [(each["speed"], each["slots"], each["nodes"]) for each in seen] == [
        (speed, slots, nodes) for speed in (0.5, 1) for slots in (2, 8) for nodes in (1, 4)
    ]
    assert seen[3]["met"] > seen[0]["met"]
