"""How old the input of a request is, and what follows from it. Pure: the wall clock's reading is passed in.

Clients stamp inputs with the time of the event (a sensor reading, a price) or of its ingestion, in Unix milliseconds.
Age is computed when it is needed, never by a periodic probe: at arrival, and again when the request starts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

import msgspec

from zerolayer.errors import InvalidRequest, StaleInput

Get = Callable[[bytes], bytes | None]
Policy = Literal["refuse", "wait", "flag"]

EVENT: Final = b"x-zl-event-time-ms"
INGEST: Final = b"x-zl-ingest-time-ms"
MAX_AGE: Final = b"x-zl-max-age-ms"
MAX_WAIT_MS: Final = 1000  # the longest that a stamp may lie in the future: clocks differ, but not by more
_DIGITS: Final = 15
_NOTHING: Final = (None,) * 6


class Stamps(msgspec.Struct, frozen=True):
    """``born_ms`` is the older of event and ingest time (Unix milliseconds); ``max_age_ms`` 0 allows any age."""

    born_ms: int | None = None
    max_age_ms: int = 0

    @property
    def checked(self) -> bool:
        """Whether age matters to this request."""
        return self.born_ms is not None and self.max_age_ms > 0


class Verdict(msgspec.Struct, frozen=True):
    """``age_ms`` is None when no time was told; ``wait_ms`` is above 0 when the input's time has not come yet."""

    age_ms: int | None = None
    stale: bool = False
    wait_ms: int = 0


TIMELESS: Final = Verdict()
"""Of an input that tells no time, as most do."""


class Freshness:
    """The contract's section of that name: what is allowed where a request says nothing, and what follows."""

    def __init__(self, max_age_ms: int, policy: Policy) -> None:
        self._max_age_ms = max_age_ms
        self._policy = policy
        self._plain = Stamps(None, max_age_ms)

    def read(
        self, get: Get, event_ms: int | None = None, ingest_ms: int | None = None, max_age_ms: int | None = None
    ) -> Stamps:
        """The stamps of a request, from its headers and from members of its body; the stricter one counts.

        A request may ask for fresher input than the contract, not for less fresh.

        Raises ``InvalidRequest`` for what is no number, and for a largest age without a time.
        """
        told = (event_ms, ingest_ms, max_age_ms, get(EVENT), get(INGEST), get(MAX_AGE))
        if told == _NOTHING:  # nearly always
            return self._plain
        stamped = (_milliseconds(get, EVENT), _milliseconds(get, INGEST), event_ms, ingest_ms)
        asked = [limit for limit in (_milliseconds(get, MAX_AGE), max_age_ms) if limit is not None]
        limits = [*asked, self._max_age_ms] if self._max_age_ms else asked
        times = [time for time in stamped if time is not None]
        if asked and not times:
            message = f"{_name(MAX_AGE)} needs {_name(EVENT)} or {_name(INGEST)} to tell an age"
            raise InvalidRequest(message, param=_name(MAX_AGE))
        return Stamps(min(times, default=None), max(1, min(limits)) if limits else 0)

    def lasts_ms(self, stamps: Stamps, verdict: Verdict) -> int | None:
        """For how long from ``verdict`` on the input is fresh enough to begin; None: for ever."""
        if self._policy == "flag" or not stamps.checked:
            return None
        return stamps.max_age_ms - (verdict.age_ms or 0)

    def judge(self, stamps: Stamps, now_ms: int) -> Verdict:
        """What holds at ``now_ms`` (Unix milliseconds). Raises ``StaleInput`` 409 and ``InvalidRequest`` 400."""
        if stamps.born_ms is None:
            return TIMELESS
        age = now_ms - stamps.born_ms
        if age < -MAX_WAIT_MS:
            raise InvalidRequest(
                f"the input's time lies {-age} ms ahead of this server's clock; set the clocks right", param=None
            )
        if age < 0 and self._policy == "wait":
            return Verdict(0, wait_ms=-age)
        stale = 0 < stamps.max_age_ms < age
        if stale and self._policy != "flag":
            raise StaleInput(f"the input is {age} ms old, and {stamps.max_age_ms} ms are allowed; send a fresher one")
        return Verdict(max(0, age), stale)


def _milliseconds(get: Get, name: bytes) -> int | None:
    value = get(name)
    if value is None:
        return None
    if not value.isdigit() or len(value) > _DIGITS:
        raise InvalidRequest(f"the header {_name(name)} must be whole milliseconds", param=_name(name))
    return int(value)


def _name(header: bytes) -> str:
    return header.decode("ascii")
