"""The socket between the two processes: messages with descriptors, waited for or on the loop."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from zerolayer.errors import TakeoverFailed
from zerolayer.front.caller import peer_credentials
from zerolayer.serve.takeover.messages import (
    MOST_DESCRIPTORS,
    PREAMBLE,
    VERSION,
    Message,
    Reader,
    descriptors_of,
    frame,
    misfit,
)

_READ: Final = 1 << 18
_INT: Final = array.array("i").itemsize
_CLOEXEC: Final = 0x40000000  # MSG_CMSG_CLOEXEC, recvmsg(2)
Received = Callable[[Message, list[int]], None]


class Channel:
    """One end. Owns ``connected`` and every descriptor that nobody has taken."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._reader = Reader()
        self._ready: deque[Message] = deque()
        self._descriptors: deque[int] = deque()
        self._out: deque[tuple[memoryview, Sequence[int], bool]] = deque()  # bytes, descriptors, whether they are ours
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writing = False
        self.closed = False
        self._put(PREAMBLE, ())

    @property
    def peer(self) -> tuple[int, int]:
        """Process and user at the other end."""
        return peer_credentials(self._socket)[:2]

    # Waiting.

    def ask(self, seconds: float) -> tuple[Message, list[int]] | None:
        """The next message and its descriptors; None when the other side is gone or silent for so long.

        Raises ``TakeoverFailed`` for another version.
        """
        self._socket.settimeout(seconds)
        try:
            while (found := self._next()) is None:
                if not self._receive():
                    return None
        except OSError:
            return None
        return found

    # On the loop.

    def attach(self, loop: asyncio.AbstractEventLoop, received: Received, lost: Callable[[str], None]) -> None:
        """Messages go to ``received``, one by one, from here on; ``lost`` is called once, "" or with a reason."""
        self._loop, self._received, self._lost = loop, received, lost
        self._socket.setblocking(False)
        loop.add_reader(self._socket.fileno(), self._on_readable)
        self._flush()
        loop.call_soon(self._deliver)

    def send(self, message: Message, descriptors: Sequence[int] = (), *, owned: bool = False) -> None:
        """Give it to the kernel, now or as soon as it takes it. ``owned`` descriptors are closed then."""
        self._put(frame(message), descriptors, owned=owned)

    def close(self) -> None:
        """Idempotent."""
        if self.closed:
            return
        self.closed = True
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        self._descriptors.extend(each for _, descriptors, owned in self._out if owned for each in descriptors)
        self._out.clear()
        _close_all(self._descriptors)

    def _put(self, data: bytes, descriptors: Sequence[int], *, owned: bool = False) -> None:
        if not self.closed:
            self._out.append((memoryview(data), descriptors, owned))
            self._flush()
        elif owned:
            _close_all(deque(descriptors))

    def _flush(self) -> None:
        try:
            while self._out:
                data, descriptors, owned = self._out[0]
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
                sent = self._socket.sendmsg([data], rights, socket.MSG_NOSIGNAL)
                self._out[0] = (data[sent:], (), False)  # the descriptors went with the first byte
                if owned:
                    _close_all(deque(descriptors))
                if sent == len(data):
                    self._out.popleft()
        except BlockingIOError:
            pass
        except OSError:  # reading says that the other side is gone
            _close_all(deque(each for _, descriptors, owned in self._out if owned for each in descriptors))
            self._out.clear()
        self._watch()

    def _watch(self) -> None:
        if self._loop is not None and self._writing != bool(self._out):
            self._writing = bool(self._out)
            if self._writing:
                self._loop.add_writer(self._socket.fileno(), self._flush)
            else:
                self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        try:
            alive = self._receive()
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            alive = False
        except TakeoverFailed as error:
            self._end(error.message)
            return
        self._deliver()
        if not alive:
            self._end("")

    def _deliver(self) -> None:
        try:
            while not self.closed and (found := self._next()) is not None:
                self._received(*found)
        except TakeoverFailed as error:
            self._end(error.message)

    def _end(self, why: str) -> None:
        if not self.closed:
            self.close()
            self._lost(why)

    def _receive(self) -> bool:
        """Take what is there. False at the end. Raises ``OSError`` and ``TakeoverFailed``."""
        data, ancillary, _, _ = self._socket.recvmsg(_READ, socket.CMSG_SPACE(MOST_DESCRIPTORS * _INT), _CLOEXEC)
        for level, kind, body in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                self._descriptors.extend(array.array("i", body[: len(body) // _INT * _INT]))
        if not data:
            return False
        self._ready.extend(self._reader.receive(data))
        if self._reader.version not in (0, VERSION):
            raise TakeoverFailed(misfit(self._reader.version))
        return True

    def _next(self) -> tuple[Message, list[int]] | None:
        if not self._ready:
            return None
        message = self._ready.popleft()
        count = descriptors_of(message)
        if count > len(self._descriptors):
            raise TakeoverFailed("descriptors were lost on their way: the limit of open files is reached (ulimit -n)")
        return message, [self._descriptors.popleft() for _ in range(count)]


def _close_all(descriptors: deque[int]) -> None:
    while descriptors:
        os.close(descriptors.popleft())
