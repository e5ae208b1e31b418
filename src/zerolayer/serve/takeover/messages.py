"""What the old process and the new one say to each other, and its bytes. Pure.

Each side begins with ``PREAMBLE``: four letters and the version of everything that follows, so that two releases can
tell at once that they do not understand each other. Then frames: four bytes of length, big-endian, and one message in
MessagePack. Descriptors travel beside the bytes of the frame that counts them (SCM_RIGHTS, unix(7)).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

import msgspec

from zerolayer.errors import TakeoverFailed
from zerolayer.guard.budget.succession import Legacy, Settled
from zerolayer.guard.deadline.succession import Engagements

VERSION: Final = 1
MAGIC: Final = b"ZLTO"  # no method of HTTP begins so
_PREAMBLE: Final = Struct(">4sH")
PREAMBLE: Final = _PREAMBLE.pack(MAGIC, VERSION)
_LENGTH: Final = Struct(">I")
_MOST_BYTES: Final = 256 << 20
MOST_DESCRIPTORS: Final = 250  # in one message; the kernel takes 253


class Clocks(msgspec.Struct, frozen=True):
    """How a process reads the time. Monotonic times mean the same in both where boot and namespace are the same."""

    boot: str
    namespace: str
    monotonic_ns: int
    wall_ns: int


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The new process would take over, and would listen on these addresses."""

    release: str
    clocks: Clocks
    addresses: dict[str, str]


class Welcome(msgspec.Struct, frozen=True, tag="welcome"):
    """The old one agrees. What its service manager gave it is the new one's from now on."""

    release: str
    pid: int
    clocks: Clocks
    manager: dict[str, str]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The old one goes on serving, and why."""

    why: str


class Take(msgspec.Struct, frozen=True, tag="take"):
    """The new one has loaded and warmed its model and takes everything now."""


class Estate(msgspec.Struct, frozen=True, tag="estate"):
    """Everything. ``listeners`` name the descriptors that come along, in their order."""

    listeners: tuple[str, ...]
    engagements: Engagements
    legacies: tuple[Legacy, ...]
    ends_ns: tuple[int, ...]  # of what still runs in the old one's slots, as a rule
    asked_ns: int  # whoever came after that was not read


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The new one has the estate and could accept."""


class Go(msgspec.Struct, frozen=True, tag="go"):
    """From here on the new one serves. Only the old one says so, and only once."""


class Connections(msgspec.Struct, frozen=True, tag="connections"):
    """Connections that rest; as many descriptors come along. ``first``: all that rested when the new one began."""

    count: int
    first: bool = False


class Slots(msgspec.Struct, frozen=True, tag="slots"):
    """When what still runs over there ends, as a rule."""

    ends_ns: tuple[int, ...]


class Drained(msgspec.Struct, frozen=True, tag="drained"):
    """Nothing runs any more, and everything is settled."""


Message = Hello | Welcome | Refused | Take | Estate | Ready | Go | Connections | Slots | Settled | Drained
_decode: Final = msgspec.msgpack.Decoder(Message).decode
_encode: Final = msgspec.msgpack.Encoder().encode


def frame(message: Message) -> bytes:
    """One message with its length."""
    data = _encode(message)
    return _LENGTH.pack(len(data)) + data


def descriptors_of(message: Message) -> int:
    """How many come along."""
    if isinstance(message, Estate):
        return len(message.listeners)
    return message.count if isinstance(message, Connections) else 0


class Reader:
    """Bytes to messages. ``version`` is the other side's, 0 until it is known."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self.version = 0

    def receive(self, data: bytes) -> list[Message]:
        """What is complete now. Raises ``TakeoverFailed`` for what no process of this version sends."""
        self._bytes += data
        if not self.version and not self._begin():
            return []
        found: list[Message] = []
        while self.version == VERSION and len(self._bytes) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._bytes)
            if size > _MOST_BYTES:
                raise TakeoverFailed("the other process sent what is no message of a takeover")
            end = _LENGTH.size + size
            if len(self._bytes) < end:
                break
            try:
                found.append(_decode(memoryview(self._bytes)[_LENGTH.size : end].tobytes()))
            except msgspec.DecodeError:
                raise TakeoverFailed("the other process sent what is no message of a takeover") from None
            del self._bytes[:end]
        return found

    def _begin(self) -> bool:
        if len(self._bytes) < _PREAMBLE.size:
            return False
        magic, version = _PREAMBLE.unpack_from(self._bytes)
        if magic != MAGIC or not version:
            raise TakeoverFailed("whoever listens there is no zerolayer that can be taken over")
        self.version = version
        del self._bytes[: _PREAMBLE.size]
        return True


def misfit(version: int) -> str:
    """What people are told when the other side has that version."""
    return (
        f"the two processes hand over in different formats ({version} and {VERSION}), so nothing was changed; stop the "
        "old server and start the new one"
    )
