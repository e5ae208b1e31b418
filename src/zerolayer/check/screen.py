"""The live page as lines of text: what is known of a server so far, drawn for a terminal of some width and height."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from zerolayer.check.errors import TargetError
from zerolayer.check.printable import printable

_VERSION: Final = 1
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_SHADES: Final = " ░▒▓█"
_FILLS: Final = "█▓▒░·:-=+"
_PAST_S: Final = 0.35  # of the calendar's width lies before now, as part of what lies after it
_SPANS_MS: Final = (1_000, 2_000, 4_000, 10_000, 20_000, 40_000, 60_000, 120_000, 300_000, 600_000)
_SECONDS: Final = 60  # columns of the heat map
_MOST_LANES: Final = 16  # slots that are drawn
_LATENCIES: Final = {"first_token": "first token", "between_tokens": "between", "end_to_end": "whole reply"}
LATENCIES: Final = tuple(_LATENCIES)
_OUTCOMES: Final = {
    "kept": "came and served", "early": "early, told again", "late": "too late", "no_show": "did not come",
    "broken": "came, not served",
}  # fmt: skip
_WHO: Final = {"_idle": "idle", "_anyone": "without a key", "_other": "all others"}
_LIMITS: Final = {
    "requests_per_minute": "requests a minute", "tokens_per_minute": "tokens a minute", "concurrent": "at once",
    "compute_us_per_day": "compute today",
}  # fmt: skip


class _Service(msgspec.Struct):
    version: int
    model: str
    engine: str
    slots: int
    fallback: str
    bounds_s: dict[str, list[float]]


class _Moment(msgspec.Struct):
    slots: list[tuple[str, int, int, int]]
    bookings: list[tuple[int, int, int, bool, bool]]
    feasible: bool
    running: int
    free: int


class _Minute(msgspec.Struct):
    seconds: float
    wall_us: dict[str, int]
    stages_us: dict[str, int]
    histograms: dict[str, list[int]]
    finished: dict[str, int]
    refused: dict[str, int]
    steps: dict[str, int]
    tokens: int
    bookings: dict[str, int]
    deadlines: dict[str, int]
    abandoned: dict[str, int]
    tenants_us: dict[str, int] = {}


class Screen:
    """What is known so far, and the lines that show it. ``width`` and ``height`` in characters; 0: any height.

    ``latency`` is one of ``LATENCIES``: that of the heat map.
    """

    def __init__(self, width: int, height: int = 0, latency: str = LATENCIES[0]) -> None:
        self._width = max(40, width)
        self._height = height
        self._latency = latency
        self._service: _Service | None = None
        self._moment: _Moment | None = None
        self._minute: _Minute | None = None
        self._columns: dict[str, list[list[int]]] = {}
        self._budgets: list[tuple[str, str, int, int]] = []

    def take(self, name: str, data: bytes) -> bool:
        """Take an event in. True when it is time to draw. Raises ``TargetError`` for what is no such stream."""
        decode = msgspec.json.decode
        try:
            if name == "service":
                self._service = decode(data, type=_Service)
                self._columns = {}  # all of them follow
                if self._service.version > _VERSION:
                    raise TargetError("the server is newer than this command; take the one of its version")
            elif name == "moment":
                self._moment = decode(data, type=_Moment)
            elif name == "minute":
                self._minute = decode(data, type=_Minute)
            elif name == "budgets":
                self._budgets = decode(data, type=list[tuple[str, str, int, int]])
            elif name == "columns":
                for which, more in decode(data, type=dict[str, list[list[int]]]).items():
                    self._columns[which] = [*self._columns.get(which, []), *more][-_SECONDS:]
        except msgspec.MsgspecError:
            raise TargetError("what answers here is no live stream of zerolayer; give the admin address") from None
        return name == "moment" and self._service is not None

    def lines(self) -> list[str]:
        """The picture. Where it is too high, the slots are left out first, then the heat map, then the end of it."""
        service, moment, minute = self._service, self._moment, self._minute
        if service is None or moment is None:
            return []
        promises = "every promise can be kept" if moment.feasible else "A PROMISE CANNOT BE KEPT"
        top = [
            f"zerolayer  {service.model} on {service.engine}",
            f"{moment.free} of {service.slots} slots free, {len(moment.bookings)} booked, {promises}",
        ]
        calendar = ["", *self._calendar(moment)]
        if minute is None:
            return self._fitted([top, calendar])
        heat = ["", *self._heat(service)]
        account = ["", *self._account(minute)]
        counts = ["", *self._counts(service, minute), *self._refusals(minute), *self._tenants(minute)]
        for blocks in ([top, calendar, account, heat, counts], [top, account, heat, counts], [top, account, counts]):
            if not self._height or sum(map(len, blocks)) <= self._height:
                return self._fitted(blocks)
        return self._fitted([top, account, counts])

    def _fitted(self, blocks: list[list[str]]) -> list[str]:
        out = [printable(line[: self._width]).rstrip() for block in blocks for line in block]
        return out[: self._height] if self._height else out

    def _calendar(self, moment: _Moment) -> Iterator[str]:
        """A line a slot: # was running, = runs until then at the latest, o is booked, | is now."""
        room = self._width - 4
        latest = max([0, *[slot[2] for slot in moment.slots], *[booking[2] for booking in moment.bookings]])
        span = next((each for each in _SPANS_MS if each >= latest), _SPANS_MS[-1])
        past = span * _PAST_S
        now = _cell(0, past, span, room)
        for number, (state, since, end, _) in enumerate(moment.slots[:_MOST_LANES]):
            cells = ["·"] * room
            for slot, start, until, _, _ in moment.bookings:
                if slot == number:
                    _fill(cells, _cell(start, past, span, room), _cell(until, past, span, room), "o")
            if state != "free":
                _fill(cells, now, _cell(end, past, span, room), "=")
                _fill(cells, _cell(since, past, span, room), now, "#")
            cells[now] = "|"
            yield f"{number + 1:>3} " + "".join(cells)
        ruler = f"-{past / 1000:.2g} s" + " " * room
        yield "    " + _over(_over(ruler[:room], now, "now"), room - 6, f"{f'+{span // 1000} s':>6}")
        if len(moment.slots) > _MOST_LANES:
            yield f"    and {len(moment.slots) - _MOST_LANES} more slots"

    def _account(self, minute: _Minute) -> Iterator[str]:
        """Two bars that sum to 100 %, and what each character stands for."""
        for title, parts in (("server", minute.wall_us), ("requests", minute.stages_us)):
            shown = bar(parts, self._width - 10)
            if not shown:
                yield f"{title:<9} nothing in the last {minute.seconds:.0f} s"
                continue
            whole = sum(parts.values())
            yield f"{title:<9} {shown}"
            told = [
                f"{fill} {name} {100 * part / whole:.1f} %"
                for fill, (name, part) in zip(_FILLS, parts.items(), strict=False)
                if part
            ]
            yield from _wrapped(told, self._width - 10)

    def _heat(self, service: _Service) -> Iterator[str]:
        """A column a second, a row a bucket that anything fell into; the darker, the more."""
        columns, bounds = self._columns.get(self._latency, []), service.bounds_s.get(self._latency, [])
        title = _LATENCIES[self._latency]
        used = [place for column in columns for place, count in enumerate(column) if count]
        if not used:
            yield f"{title}: nothing in the last {len(columns)} s"
            return
        yield f"{title}, by second: the darker, the more"
        shown = columns[-max(1, min(_SECONDS, self._width - 12)) :]
        most = max(max(column) for column in columns)
        for place in range(max(used), min(used) - 1, -1):
            label = f"<= {_told(bounds[place])}" if place < len(bounds) else f"> {_told(bounds[-1])}"
            yield f"{label:>10} |" + "".join(shade(column[place], most) for column in shown)
        yield f"{'':>10} |" + f"{f'-{len(shown)} s':<{max(0, len(shown) - 3)}}now"

    def _counts(self, service: _Service, minute: _Minute) -> Iterator[str]:
        for name, title in _LATENCIES.items():
            counts, bounds = minute.histograms[name], service.bounds_s[name]
            p50, p99 = (_told(quantile(counts, bounds, share)) for share in (0.5, 0.99))
            yield f"{title:<12} {sparkline(counts)}  P50 {p50}  P99 {p99}"
        requests, rate = sum(minute.finished.values()), minute.tokens / minute.seconds
        yield f"{requests} requests and {rate:.0f} tokens/s in {minute.seconds:.0f} s"
        whole = sum(minute.steps.values())
        if whole:
            hits = 100 * (1 - minute.steps.get(service.fallback, 0) / whole)
            yield f"programs: {_list(minute.steps)} steps, {hits:.1f} % hits"

    def _refusals(self, minute: _Minute) -> Iterator[str]:
        """Who was refused, and what became of the starts that were booked for them."""
        bookings, refused = minute.bookings, minute.refused
        came = sum(bookings.get(name, 0) for name in ("kept", "early", "late", "broken"))
        sent = refused.get("slots_busy", 0) - bookings.get("early", 0)
        yield f"refused: {_list(refused)}"
        yield f"booked starts: {_list({text: bookings.get(name, 0) for name, text in _OUTCOMES.items()})}"
        served = f"{100 * bookings.get('kept', 0) / came:.1f} %" if came else "-"
        yield f"retries: {f'{came / sent:.2f}' if sent > 0 else '-'} for a refusal, {served} of those that came served"
        kept, missed = (minute.deadlines.get(each, 0) for each in ("true", "false"))
        left = {
            "before a token": minute.abandoned.get("prefill", 0),
            "during a reply": minute.abandoned.get("decode", 0),
        }
        yield f"deadlines: {kept} kept, {missed} missed; clients left: {_list(left)}"

    def _tenants(self, minute: _Minute) -> Iterator[str]:
        """Nothing as long as nobody has a key: whose compute it was, and the limits that are used most."""
        spent, whole = minute.tenants_us, sum(minute.tenants_us.values())
        if whole and any(not name.startswith("_") for name in spent):
            yield ""
            most = sorted(spent, key=lambda name: spent[name], reverse=True)
            told = [f"{_WHO.get(name, name)} {100 * spent[name] / whole:.1f} %" for name in most if spent[name]]
            yield "compute by tenant"
            yield from _wrapped(told, self._width - 10)
        for name, limit, used, of in self._budgets:
            used_s, of_s = (f"{us / 1e6:.1f} s" if limit == "compute_us_per_day" else str(us) for us in (used, of))
            yield f"{_meter(used, of)} {name}, {_LIMITS.get(limit, limit)}: {used_s} of {of_s}"


def shade(count: int, most: int) -> str:
    """A character for ``count``, by its logarithm; only nothing is blank."""
    if not count:
        return _SHADES[0]
    return _SHADES[max(1, math.ceil((len(_SHADES) - 1) * math.log1p(count) / math.log1p(most)))]


def bar(parts: Mapping[str, int], width: int) -> str:
    """Parts as so many characters each, ``width`` in all; empty when there is nothing."""
    whole = sum(parts.values())
    if not whole:
        return ""
    shown, before, total = "", 0, 0
    for fill, part in zip(_FILLS, parts.values(), strict=False):
        total += part
        upto = round(total * width / whole)
        shown += fill * (upto - before)
        before = upto
    return shown


def quantile(counts: list[int], bounds: list[float], share: float) -> float | None:
    """Read off a histogram, seconds, straight within a bucket; None when it is empty."""
    wanted, seen = share * sum(counts), 0
    for place, count in enumerate(counts):
        if count and seen + count >= wanted:
            if place == len(bounds):
                return bounds[-1]
            low = bounds[place - 1] if place else 0.0
            return low + (bounds[place] - low) * (wanted - seen) / count
        seen += count
    return None


def sparkline(counts: list[int]) -> str:
    """A block for each bucket."""
    most = max(counts) or 1
    return "".join(_BLOCKS[-(-count * 8 // most)] for count in counts)


def _told(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _list(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "none"


def _cell(ms: float, past: float, span: float, room: int) -> int:
    return min(room - 1, max(0, round((ms + past) / (past + span) * (room - 1))))


def _fill(cells: list[str], start: int, end: int, mark: str) -> None:
    cells[start : end + 1] = mark * (end + 1 - start)


def _over(line: str, place: int, text: str) -> str:
    return line[:place] + text + line[place + len(text) :]


def _wrapped(words: list[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + len(word) + 2 > width:
            yield " " * 10 + line
            line = ""
        line += ("  " if line else "") + word
    yield " " * 10 + line


def _meter(used: int, most: int) -> str:
    filled = min(10, round(10 * used / most))
    return "[" + "#" * filled + "." * (10 - filled) + "]"
