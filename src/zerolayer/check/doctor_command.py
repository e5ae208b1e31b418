"""``zerolayer doctor``: the machine's findings and one probe, as a table or as JSON."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from zerolayer.check.doctor import Finding, Verdict, examine
from zerolayer.check.text_report import aligned

VERSION: Final = 1
_MARKS: Final = {Verdict.OK: "ok", Verdict.WATCH: "watch", Verdict.BAD: "BAD", Verdict.UNKNOWN: "-"}
_SLEEPS: Final = 300
_SLEEP_S: Final = 0.001
_LATE_NS: Final = 500_000  # at P99: what a promise to the millisecond can stand
_HELD_NS: Final = 5_000_000


def probe(
    clock_ns: Callable[[], int] = time.perf_counter_ns, sleep: Callable[[float], object] = time.sleep
) -> Iterable[Finding]:
    """How late this machine wakes a thread, over 300 sleeps of a millisecond: P99, and the worst."""
    late = []
    for _ in range(_SLEEPS):
        before = clock_ns()
        sleep(_SLEEP_S)
        late.append(clock_ns() - before - int(_SLEEP_S * 1e9))
    late.sort()
    yield _wake_up("wake-up, P99", late[int(0.99 * len(late))], _LATE_NS)
    yield _wake_up("wake-up, worst", late[-1], _HELD_NS)


def _wake_up(check: str, late_ns: int, limit_ns: int) -> Finding:
    value, limit = f"{late_ns / 1e6:.2f} ms late", f"under {limit_ns / 1e6:g} ms"
    if late_ns < limit_ns:
        return Finding("probe", check, value, limit, Verdict.OK)
    remedy = "something else had the core: see the findings above, or measure again on an idle machine"
    return Finding("probe", check, value, limit, Verdict.WATCH, remedy)


def run(*, json: bool) -> int:
    """Examine this machine and print what was found; 4 when something is bad, else 0."""
    findings = [*examine(), *probe()]
    if json:
        sys.stdout.write(as_json(findings).decode() + "\n")
    else:
        print("\n".join(lines(findings)))
    return 4 if any(finding.verdict is Verdict.BAD for finding in findings) else 0


def as_json(findings: Sequence[Finding]) -> bytes:
    """One versioned object."""
    return msgspec.json.format(msgspec.json.encode({"version": VERSION, "findings": findings}), indent=1)


def lines(findings: Sequence[Finding]) -> list[str]:
    """The table in the order of the layers, and the remedies below it."""
    rows = [["", "layer", "check", "value", "limit"]]
    rows += [[_MARKS[each.verdict], each.layer, each.check, each.value, each.limit] for each in findings]
    out = list(aligned(rows))
    remedies = [each for each in findings if each.remedy]
    if remedies:
        out += ["", "What to do:"]
    out += [f"  {each.check}: {each.remedy}{' (as root)' if each.needs_root else ''}" for each in remedies]
    return out
