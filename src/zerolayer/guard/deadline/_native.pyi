"""The calendar, admission and nodes on paper, compiled; implemented in src/zerolayer/native/deadline_module.cpp."""

from collections.abc import Callable, Iterator

from zerolayer.guard.deadline.admission import Wish
from zerolayer.guard.deadline.booking import Terms, Work
from zerolayer.guard.deadline.tickets import Asker, Name

class Booking:
    """A start that is promised (``native/deadline_booking.hpp``). Times are monotonic nanoseconds.

    Whoever made it comes within ``start_ns`` and ``start_ns`` plus the grace.
    """

    held: bool  # its client is here
    early_ns: int  # by how much its client may come before the start
    def __init__(
        self,
        start_ns: int,
        slot: int,
        work: Work,
        terms: Terms,
        steps: int,
        typical_ns: int,
        need_ns: int,
        weight_ns: int,
        soft: bool = False,
    ) -> None: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def work(self) -> Work: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def due_ns(self) -> int:
        """The deadline."""

    @property
    def steps(self) -> int: ...
    @property
    def typical_ns(self) -> int:
        """From start to end, as it usually goes."""

    @property
    def need_ns(self) -> int:
        """The bound of that, with everything that others may add."""

    @property
    def weight_ns(self) -> int:
        """What it adds to others."""

    @property
    def single_ns(self) -> int:
        """Of ``need_ns``: the first chunks of other slots, which it need not fear again if it follows at once."""

    @property
    def hold_ns(self) -> int:
        """How long its client may be held."""

    @property
    def strict(self) -> bool:
        """Its stream allows no foreign chunk."""

    @property
    def soft(self) -> bool:
        """It gives way to whoever comes before its client does."""

    @property
    def ticket(self) -> str: ...
    @property
    def credential(self) -> Name | None: ...
    @property
    def key(self) -> tuple[Name | None, Name | None]:
        """Who made it, and for which request."""

    @property
    def spare_ns(self) -> int:
        """What others may still add, while it is booked."""

class Calendar:
    """What ``deadline.calendar.Calendar`` is made of: the same methods, with the time as their last argument."""

    def __init__(self, slots: int, grace_ns: int, horizon_ns: int, reserved: int) -> None: ...
    @property
    def slots(self) -> int: ...
    def price(
        self, step_ns: int, chunk_ns: int, reserve_ns: int, stall_ns: int, rate: float, spent_ns: int, /
    ) -> None:
        """What to promise with from here on; ``chunk_ns`` is a full chunk's."""

    @property
    def free(self) -> int: ...
    @property
    def confirmed(self) -> bool: ...
    @property
    def open(self) -> int: ...
    @property
    def booked_ns(self) -> int: ...
    @property
    def bookings(self) -> list[Booking]: ...
    def next_open_ms(self, slots: int, now: int, /) -> int: ...
    def standing(self, now: int, /) -> tuple[int, int]: ...
    def is_feasible(self, now: int, /) -> bool: ...
    def ends(self) -> list[int]:
        """By slot, 0 where it is free; as of the last decision."""

    def due_ns(self, slot: int, /) -> int: ...
    def late(self, now: int, /) -> list[int]: ...
    def overdue(self, now: int, /) -> list[Booking]:
        """Bookings whose client has not come in time."""

    def fit(self, work: Work, terms: Terms, now: int, /) -> int: ...
    def claim(self, work: Work, terms: Terms, now: int, /) -> int: ...
    def claim_all(self, work: Work, terms: Terms, count: int, now: int, /) -> list[int]: ...
    def in_the_way(self, work: Work, terms: Terms, now: int, /) -> list[Booking]:
        """Soft bookings without which ``claim`` would succeed; none where that does not depend on them."""

    def redeem(self, booking: Booking, now: int, /) -> int: ...
    def confirm(self, slot: int, work: Work, now: int, /) -> bool: ...
    def ending(self, slot: int, /) -> None: ...
    def release(self, slot: int, /) -> None: ...
    def on_step(self, prefill_slot: int, ended_ns: int, steps: int, /) -> None: ...
    def shorten(self, slot: int, work: Work, /) -> None: ...
    def skip(self, slot: int, tokens: int, chunk_tokens: int, /) -> None: ...
    def book(
        self,
        work: Work,
        terms: Terms,
        spaced: Callable[[int], int] | None,
        soft: bool,
        room: int,
        waited: bool,
        now: int,
    ) -> Booking | None: ...
    def tell(self, work: Work, terms: Terms, spaced: Callable[[int], int] | None, now: int) -> int:
        """-1 where there is no such time."""

    def void(self, booking: Booking, /) -> None: ...

class Attendance:
    """Who keeps bookings (``native/deadline_attendance.hpp``): kept and lapsed ones of each sender, fading."""

    def __init__(self) -> None: ...
    @property
    def kept(self) -> int: ...
    @property
    def lapsed(self) -> int: ...
    def trusts(self, credential: Name, /) -> bool:
        """Whether a slot may be held for this sender, whoever else comes."""

    def by_hand(self, credential: Name, /) -> bool:
        """Whether what this sender says of its attempts means nothing."""

    def came(self, credential: Name, /) -> None:
        """A booking was redeemed."""

    def stayed_away(self, credential: Name, /) -> None:
        """A booking lapsed."""

    def seen(self) -> list[tuple[Name, tuple[float, float]]]:
        """Kept and lapsed bookings by sender, the last that changed at the end."""

    def remember(self, credential: Name, kept: float, lapsed: float, /) -> None:
        """What another process has seen of a sender."""

class Tickets:
    """All bookings by key (sender, route and body), by ticket and by sender (``native/deadline_tickets.hpp``)."""

    def __init__(self, grace_ns: int, urandom: Callable[[int], bytes], /) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Booking]: ...
    def of(self, credential: Name, /) -> int:
        """How many bookings a sender holds."""

    def of_ticket(self, ticket: str, credential: Name, /) -> Booking | None:
        """The booking of this ticket, if it is this sender's and waits for him."""

    def add(self, booking: Booking, asker: Asker, key: Name, /) -> None:
        """File a booking under ``key`` and give it its ticket."""

    def file(self, booking: Booking, credential: Name, key: Name, ticket: str, /) -> None:
        """``add`` what has its ticket already."""

    def remove(self, booking: Booking, /) -> None:
        """Forget a booking that was redeemed or void. Raises ``IndexError`` where there is none."""

    def match(self, asker: Asker, key: Name, now_ns: int, heard_ns: int | None = None) -> Booking | None:
        """The booking that this request redeems, or comes too early for; None when it is a new request.

        It has come after ``heard_ns``, and may have waited since then to be read.
        """

    def spaced(self, asker: Asker, now_ns: int, start_ns: int, /) -> int:
        """``start_ns``, or the next time after it that keeps the distance and that the client can be told."""

class Answer:
    """What admission decides. ``kind``: 0 granted, 1 held, 2 busy, 3 beyond the horizon, 4 infeasible."""

    @property
    def kind(self) -> int: ...
    @property
    def slot(self) -> int: ...
    @property
    def due_ns(self) -> int: ...
    @property
    def booked(self) -> bool: ...
    @property
    def booking(self) -> Booking | None:
        """Whose client is to be held."""

    @property
    def start_ns(self) -> int:
        """Busy: when to come again."""

    @property
    def ticket(self) -> str:
        """Busy: of what is booked, or nothing."""

    @property
    def needs(self) -> int:
        """Infeasible: 0 the first token, 1 the end, 2 each token takes too long."""

    @property
    def needed_ns(self) -> float:
        """Infeasible: so long at least."""

    @property
    def limit_ns(self) -> int:
        """Infeasible: and so much is allowed."""

    @property
    def counts(self) -> bool:
        """Whether any of what follows is to be counted."""

    @property
    def no_shows(self) -> int: ...
    @property
    def early(self) -> bool: ...
    @property
    def late(self) -> bool: ...
    @property
    def came_ns(self) -> int | None:
        """So long after its start a booking was asked for."""

class Admission:
    """What ``deadline.admission.Admission`` is made of. Decides at the prices that the calendar has."""

    heard_ns: int | None
    told_ns: int
    ends_soon: bool
    def __init__(self, calendar: Calendar, urandom: Callable[[int], bytes], /) -> None: ...
    @property
    def attendance(self) -> Attendance: ...
    @property
    def tickets(self) -> Tickets: ...
    def ask(self, wish: Wish, asker: Asker, now: int, /) -> Answer: ...
    def refuse_longer(self, wish: Wish, asker: Asker, now: int, /) -> Answer: ...
    def never(self, wish: Wish, /) -> Answer:
        """Infeasible where it could not be in time on an engine that does nothing else, else granted."""

    def began_unbooked(self) -> None: ...
    def resume(self, booking: Booking, now: int, /) -> tuple[int, int]:
        """The slot of a held client, or -1, and how many bookings nobody came for at all."""

    def void(self, booking: Booking, /) -> None: ...
    def sweep(self, now: int, /) -> int:
        """Void what nobody came for; how many nobody came for at all."""

class Rules:
    """``check.simulated_node.Rules``."""

    def __init__(
        self,
        first_token_ns: int,
        per_token_ns: int,
        end_ns: int,
        horizon_ns: int,
        grace_ns: int,
        patient: bool,
        senders: int,
        retries: int,
        /,
    ) -> None: ...

class Engine:
    """``check.simulated_node.Steps`` and its prices; ``full_ns`` is what a full chunk adds."""

    def __init__(
        self,
        slots: int,
        decode_ns: int,
        mixed_ns: int,
        chunk_ns: int,
        step_ns: int,
        full_ns: int,
        reserve_ns: int,
        stall_ns: int,
        rate: float,
        /,
    ) -> None: ...

class SimulatedNode:
    """One node on paper (``native/simulated_node.hpp``). Calls come in the order of their times, in nanoseconds."""

    def __init__(self, engine: Engine, rules: Rules, chunks: list[int], tokens: list[int], calm: bool, /) -> None: ...
    @property
    def free(self) -> int:
        """Slots that nobody holds, as of the last call."""

    @property
    def next_step(self) -> int:
        """Steps until the first slot is free."""

    def offer(self, request: int, at: int, /) -> tuple[int, int]:
        """A new request: (served, 0), (refused, time to come back at, or -1 for never), (infeasible, 0)."""

    def ask(self, request: int, at: int, attempt: int, since: int, /) -> tuple[int, int]:
        """The same by the calendar. ``attempt`` counts from 0, ``since`` is the time of the first one."""

    def advance(self, at: int, /) -> None:
        """Let time go on to ``at``."""

    @property
    def ended(self) -> list[tuple[int, int, int, int]]:
        """What was served: request, start, end, due."""

class SimulatedOutcome:
    """Counts of requests. Those that ended in time: ``at_once``, and ``booked``, that were refused at first."""

    @property
    def at_once(self) -> int: ...
    @property
    def booked(self) -> int: ...
    @property
    def late(self) -> int: ...
    @property
    def refused(self) -> int: ...
    @property
    def infeasible(self) -> int: ...
    @property
    def last_ns(self) -> int:
        """The last end in time."""

    @property
    def busy_ns(self) -> int:
        """Slot time of those that ended in time."""

    @property
    def tokens(self) -> int:
        """Of their answers."""

class SimulatedFleet:
    """Nodes of one kind on paper, and what becomes of requests on them (``native/simulated_fleet.hpp``)."""

    def __init__(self, nodes: int, engine: Engine, rules: Rules, chunks: list[int], tokens: list[int], /) -> None: ...
    def send(self, arrivals_ns: list[int], first: int, most: int, /) -> bool:
        """New requests from number ``first`` on. False as soon as more than ``most`` are refused for good."""

    def finish(self) -> SimulatedOutcome:
        """Let everybody come back and end."""
