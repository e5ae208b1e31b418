"""``zerolayer watch``: the live page in a terminal, from the same stream of events."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TextIO

import msgspec

from zerolayer.check.errors import TargetError
from zerolayer.client.address import Address, Patience
from zerolayer.client.errors import BrokenReply
from zerolayer.client.transport import get

_SILENCE_S: Final = 10.0  # a moment comes several times a second
_VERSION: Final = 1
_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_FILLS: Final = "█▓▒░·:-=+"
_PAST_S: Final = 0.35  # of the calendar's width lies before now, as part of what lies after it
_SPANS_MS: Final = (1_000, 2_000, 4_000, 10_000, 20_000, 40_000, 60_000, 120_000, 300_000, 600_000)


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


class Screen:
    """What is known so far, and the lines that show it. ``width`` in characters."""

    def __init__(self, width: int) -> None:
        self._width = max(40, width)
        self._service: _Service | None = None
        self._moment: _Moment | None = None
        self._minute: _Minute | None = None

    def take(self, name: str, data: bytes) -> bool:
        """Take an event in. True when it is time to draw. Raises ``TargetError`` for what is no such stream."""
        try:
            if name == "service":
                self._service = msgspec.json.decode(data, type=_Service)
                if self._service.version > _VERSION:
                    raise TargetError("the server is newer than this command; take the one of its version")
            elif name == "moment":
                self._moment = msgspec.json.decode(data, type=_Moment)
            elif name == "minute":
                self._minute = msgspec.json.decode(data, type=_Minute)
        except msgspec.MsgspecError:
            raise TargetError("what answers here is no live stream of zerolayer; give the admin address") from None
        return name == "moment" and self._service is not None

    def lines(self) -> list[str]:
        """The picture."""
        service, moment, minute = self._service, self._moment, self._minute
        if service is None or moment is None:
            return []
        promises = "every promise can be kept" if moment.feasible else "A PROMISE CANNOT BE KEPT"
        out = [
            f"zerolayer  {service.model} on {service.engine}",
            f"{moment.free} of {service.slots} slots free, {len(moment.bookings)} booked, {promises}",
            "",
            *self._calendar(moment),
        ]
        if minute is not None:
            out += ["", *self._account(minute), "", *self._counts(service, minute)]
        return [line[: self._width] for line in out]

    def _calendar(self, moment: _Moment) -> Iterator[str]:
        """A line a slot: # was running, = runs until then at the latest, o is booked, | is now."""
        room = self._width - 4
        latest = max([0, *[slot[2] for slot in moment.slots], *[booking[2] for booking in moment.bookings]])
        span = next((each for each in _SPANS_MS if each >= latest), _SPANS_MS[-1])
        past = span * _PAST_S
        now = _cell(0, past, span, room)
        for number, (state, since, end, _) in enumerate(moment.slots):
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

    def _counts(self, service: _Service, minute: _Minute) -> Iterator[str]:
        for name, title in (
            ("first_token", "first token"),
            ("between_tokens", "between"),
            ("end_to_end", "whole reply"),
        ):
            counts, bounds = minute.histograms[name], service.bounds_s[name]
            p50, p99 = (_told(quantile(counts, bounds, share)) for share in (0.5, 0.99))
            yield f"{title:<12} {sparkline(counts)}  P50 {p50}  P99 {p99}"
        requests, rate = sum(minute.finished.values()), minute.tokens / minute.seconds
        yield f"{requests} requests and {rate:.0f} tokens/s in {minute.seconds:.0f} s; refused: {_list(minute.refused)}"
        kept, missed = (minute.deadlines.get(each, 0) for each in ("true", "false"))
        yield f"booked starts: {_list(minute.bookings)}; deadlines kept {kept}, missed {missed}"
        whole = sum(minute.steps.values())
        if whole:
            hits = 100 * (1 - minute.steps.get(service.fallback, 0) / whole)
            yield f"programs: {_list(minute.steps)} steps, {hits:.1f} % hits"


def watch(url: str, *, once: bool, out: TextIO | None = None) -> int:
    """Draw until interrupted, or the first whole picture alone. Raises ``ClientError`` and ``TargetError``."""
    out = out or sys.stdout
    patience = Patience(_SILENCE_S, None, time.monotonic_ns)
    exchange = get(Address.parse(url), "/live", patience)
    try:
        screen = Screen(shutil.get_terminal_size().columns)
        for name, data in events(exchange.lines(patience)):
            if not screen.take(name, data):
                continue
            home = "\x1b[H\x1b[J" if out.isatty() and not once else ""
            out.write(home + "\n".join(screen.lines()) + "\n")
            out.flush()
            if once:
                return 0
    except (OSError, BrokenReply):
        raise TargetError("the server fell silent; is it still running?") from None
    finally:
        exchange.close()
    raise TargetError("the server ended the stream; start the command again when it is back")


def events(lines: Iterable[bytes]) -> Iterator[tuple[str, bytes]]:
    """Name and data of each event with one line of data (WHATWG HTML, section 9.2)."""
    name = ""
    for line in lines:
        field, _, value = line.rstrip(b"\r\n").partition(b": ")
        if field == b"event":
            name = value.decode("ascii", "replace")
        elif field == b"data":
            yield name, value


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
