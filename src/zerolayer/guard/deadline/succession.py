"""From one process to the next: what was promised goes along, and what still runs over there stays counted. Pure.

The new process fits every promise into its own calendar, at its own prices. A client comes when it was told to; where
the new calendar can start it only a little later, it is held until then, as any booked client is that comes early.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from zerolayer.guard.deadline.admission import Admission
from zerolayer.guard.deadline.booking import EARLY_NS, Booking, Terms, Work
from zerolayer.guard.deadline.calendar import Calendar
from zerolayer.guard.deadline.tickets import Name
from zerolayer.model.cost import Prices

LONG_NS: Final = 1 << 55  # a year: no limit of a request, and far from what the calendar takes for never
_HELD_NS: Final = 1_000_000_000  # a client is held for so long at most for a start that moved
_ROUNDS: Final = 4  # of finding a start that leaves it the time that it is held for


class Promise(msgspec.Struct, frozen=True):
    """One booking as it travels. Times are monotonic nanoseconds of whoever reads it (``moved``).

    ``prompt_tokens`` and ``tokens`` are bounds.
    """

    start_ns: int
    prompt_tokens: int
    tokens: int
    terms: Terms
    soft: bool
    sender: bytes  # who holds it, as ``_spelled`` writes it
    request: bytes  # its route and the SHA-256 of its body, written alike
    ticket: str

    def moved(self, by_ns: int) -> Promise:
        """The same by a clock that is ``by_ns`` ahead."""
        terms = self.terms
        patience = min(LONG_NS, terms.patience_ns + by_ns) if terms.patience_ns < LONG_NS else terms.patience_ns
        moved = msgspec.structs.replace(terms, from_ns=terms.from_ns + by_ns, patience_ns=patience)
        return msgspec.structs.replace(self, start_ns=self.start_ns + by_ns, terms=moved)


class Engagements(msgspec.Struct, frozen=True):
    """Everything that admission owes and has learned. ``attendance``: senders, their kept and lapsed bookings."""

    promises: tuple[Promise, ...]
    attendance: tuple[tuple[bytes, float, float], ...]
    told_ns: int  # for whom nothing is held was told to come up to then

    def moved(self, by_ns: int) -> Engagements:
        """The same by a clock that is ``by_ns`` ahead."""
        given = tuple(promise.moved(by_ns) for promise in self.promises)
        return Engagements(given, self.attendance, self.told_ns + by_ns)


def engagements(admission: Admission, chunk_tokens: int) -> Engagements:
    """What the next process goes on with."""
    seen = admission.attendance.seen()
    known = tuple((_spelled(who), kept, lapsed) for who, (kept, lapsed) in seen)
    return Engagements(promises(admission, chunk_tokens), known, admission.told_ns)


def take_on(admission: Admission, given: Engagements, work_of: Callable[[int, int], Work]) -> int:
    """Go on with what another process owes; how many of its bookings fit."""
    for who, kept, lapsed in given.attendance:
        admission.attendance.remember(_meant(who), kept, lapsed)
    admission.told_ns = max(admission.told_ns, given.told_ns)
    return adopt(admission, given.promises, work_of)


def promises(admission: Admission, chunk_tokens: int) -> tuple[Promise, ...]:
    """All that is booked, by start."""
    return tuple(
        Promise(
            booking.start_ns,
            _prompt_tokens(booking.work, chunk_tokens),
            booking.work.tokens,
            booking.terms,
            booking.soft,
            _spelled(sender),
            _spelled(request),
            booking.ticket,
        )
        for booking in admission.calendar.bookings
        if (sender := booking.credential) is not None and (request := booking.key[1]) is not None  # somebody holds it
    )


def adopt(admission: Admission, given: Sequence[Promise], work_of: Callable[[int, int], Work]) -> int:
    """Book what was promised before; how many of ``given`` could be. ``work_of`` prices tokens of prompt and answer.

    What fits only if its client is in no hurry is booked all the same: when it comes, its own limits are looked at.
    """
    calendar, adopted = admission.calendar, 0
    for promise in sorted(given, key=lambda each: each.start_ns):
        work = work_of(promise.prompt_tokens, promise.tokens)
        booking = _adopted(calendar, promise, work) or _book(calendar, promise, work, _patient(promise))
        if booking is None:
            continue
        booking.early_ns = EARLY_NS + _held_ns(booking, promise)
        admission.tickets.file(booking, _meant(promise.sender), _meant(promise.request), promise.ticket)
        adopted += 1
    return adopted


def _adopted(calendar: Calendar, promise: Promise, work: Work) -> Booking | None:
    """A booking whose client may be held from when it was told to come until its start; its limits hold meanwhile."""
    terms, held_ns = promise.terms, 0
    for _ in range(_ROUNDS):
        booking = _book(calendar, promise, work, terms)
        if booking is None or (longer_ns := _held_ns(booking, promise)) <= held_ns:
            return booking
        calendar.void(booking)
        held_ns = longer_ns
        first_ns, end_ns = promise.terms.first_token_ns - held_ns, promise.terms.end_ns - held_ns
        terms = msgspec.structs.replace(terms, first_token_ns=first_ns, end_ns=end_ns)
    return None


def _held_ns(booking: Booking, promise: Promise) -> int:
    """How long its client waits here if it comes when it was told to; who would wait longer is told the new start."""
    moved_ns = max(0, booking.start_ns - promise.start_ns)
    return moved_ns if moved_ns <= _HELD_NS else 0


def _book(calendar: Calendar, promise: Promise, work: Work, terms: Terms) -> Booking | None:
    return calendar.book(work, terms, spaced=lambda start: max(start, promise.start_ns), soft=promise.soft)


def _patient(promise: Promise) -> Terms:
    return Terms(promise.start_ns, LONG_NS, LONG_NS, LONG_NS, urgent=promise.terms.urgent)


def _spelled(name: Name) -> bytes:
    """In bytes that tell what it was: ``_meant`` reads them."""
    if isinstance(name, bytes):
        return b"b" + name
    if isinstance(name, str):
        return b"t" + name.encode("utf-8", "surrogatepass")
    if isinstance(name, int):
        return b"i%d" % name
    return b"(" + b"".join(b"%d:%b" % (len(part), part) for part in map(_spelled, name))


def _meant(spelled: bytes) -> Name:
    kind, rest = spelled[:1], spelled[1:]
    if kind == b"b":
        return rest
    if kind == b"t":
        return rest.decode("utf-8", "surrogatepass")
    if kind == b"i":
        return int(rest)
    parts: list[Name] = []
    while rest:
        length, _, rest = rest.partition(b":")
        parts.append(_meant(rest[: int(length)]))
        rest = rest[int(length) :]
    return tuple(parts)


def _prompt_tokens(work: Work, chunk_tokens: int) -> int:
    """Tokens of a prompt whose chunks cost that, the last of them in its share of a full one."""
    if work.chunks < 1 or work.full_ns <= 0:
        return max(1, work.chunks * chunk_tokens)
    last = min(1.0, max(0.0, work.chunk_ns / work.full_ns - (work.chunks - 1)))
    return max(1, (work.chunks - 1) * chunk_tokens + -int(-last * chunk_tokens // 1))


def typical_ends(calendar: Calendar, prices: Prices, now_ns: int) -> tuple[int, ...]:
    """When what runs ends as a rule; monotonic nanoseconds."""
    calendar.is_feasible()  # which also brings the bounds up to date
    return tuple(now_ns + max(0, int((ends[0] - now_ns) / prices.rate)) for ends in calendar.ends() if ends is not None)


class Predecessor:
    """Slots that stay taken here while the process before this one still uses as many of its own.

    They are claimed and never given to the engine, which has slots of its own: what they hold back is time of the cores
    that both engines share, so that typical ends will do. ``update`` is called often.
    """

    def __init__(self, calendar: Calendar, prices: Callable[[], Prices]) -> None:
        self._calendar = calendar
        self._prices = prices
        self._slots: list[int] = []

    @property
    def taken(self) -> int:
        """How many there are."""
        return len(self._slots)

    def update(self, ends_ns: Sequence[int], now_ns: int) -> None:
        """What runs over there ends at these times, as a rule; monotonic nanoseconds."""
        calendar, prices = self._calendar, self._prices()
        for slot in self._slots:
            calendar.release(slot)
        self._slots = []
        if not calendar.confirmed:
            calendar.on_step(-1, now_ns, 0)  # bounds count from here, as no step of our own says how late it is
        for end_ns in sorted(ends_ns, reverse=True):
            steps = max(1, -int(-(end_ns - now_ns) * prices.rate // max(1, prices.step_ns)))
            terms = Terms(now_ns, LONG_NS, LONG_NS, LONG_NS, urgent=True)
            slot = calendar.claim(Work(0, 0, 0, steps), terms)
            if slot >= 0:
                self._slots.append(slot)

    def over(self, now_ns: int) -> None:
        """It is gone."""
        self.update((), now_ns)
