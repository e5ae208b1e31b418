"""What the front bench has found: the least of all rounds for each row, and what is above the floor of its round."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

FLOOR = "floor"  # the server that does nothing but the system calls
UNARY = "HTTP/1.1, 16 connections"
OTHERS = (FLOOR, "uvloop", "in process")


@dataclass
class Row:
    """One server doing one thing. ``rounds`` holds a value for each, None where there is none."""

    server: str
    what: str
    unit: str
    rounds: list[float | None] = field(default_factory=list)

    @property
    def value(self) -> float | None:
        """The least: whatever else ran on the machine only ever adds."""
        return min((each for each in self.rounds if each is not None), default=None)


class Rows:
    """All of them, in the order in which they came first."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Row] = {}

    def keep(self, server: str, what: str, value: float | None, unit: str) -> None:
        """One round's value."""
        self._rows.setdefault((server, what), Row(server, what, unit)).rounds.append(value)

    def over(self, row: Row) -> float | None:
        """The least that the row was above its floor in one round; None where no floor does as much."""
        floor = self._rows.get((FLOOR, _floor_of(row.what)))
        if floor is None or row.server in OTHERS or row.unit != "us":
            return None
        pairs = zip(row.rounds, floor.rounds, strict=False)
        return min((own - least for own, least in pairs if own is not None and least is not None), default=None)

    def ratio(self, row: Row) -> float | None:
        """A peer's cost over this server's for the same work."""
        own = self._rows.get(("zerolayer", row.what))
        if own is None or row.server in ("zerolayer", "in process") or not own.value or row.value is None:
            return None
        return row.value / own.value

    def lines(self) -> Iterator[str]:
        """For people."""
        yield f"  {'server':10} {'what':52} {'least':>9}    {'over floor':>10} {'to zerolayer':>12}"
        for row in self._rows.values():
            value = float("nan") if row.value is None else row.value
            over, ratio = self.over(row), self.ratio(row)
            above = "" if over is None else f"{over:+.2f}"
            times = "" if ratio is None else f"{ratio:.1f} x"
            yield f"  {row.server:10} {row.what:52} {value:9.2f} {row.unit:2} {above:>10} {times:>12}"

    def as_json(self) -> Sequence[dict[str, Any]]:
        """For programs."""
        return [
            {
                "server": row.server, "what": row.what, "value": row.value, "unit": row.unit, "rounds": row.rounds,
                "over_floor": self.over(row), "ratio": self.ratio(row),
            }
            for row in self._rows.values()
        ]  # fmt: skip


def _floor_of(what: str) -> str:
    """The row of the floor that makes the same system calls; streams on one connection share theirs."""
    if what.startswith("token"):
        return what
    return UNARY if "HTTP/1.1" in what or "16 connections" in what else ""
