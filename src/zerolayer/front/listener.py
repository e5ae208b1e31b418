"""Sockets that are listened on: who may bind, who is accepted, and what happens when there are no descriptors left.

Accepting is ours rather than the loop's for two reasons: a connection over the limit is answered in one write instead
of being dropped, and a process that is out of descriptors pauses for a moment instead of spinning on a listener that
stays readable (EMFILE). Whoever comes without TLS over TCP, and that is nearly everybody, is accepted in one native
call with all who came along, and has a transport of ours (``plain.py``).
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import stat
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

from zerolayer.contract_listen import is_loopback
from zerolayer.errors import StartupError, system_reason
from zerolayer.front.caller import Caller
from zerolayer.front.plain import PlainSockets
from zerolayer.front.site import Peer
from zerolayer.front.tls import HANDSHAKE_S, SHUTDOWN_S, Tls

_log = logging.getLogger("zerolayer.front")

BACKLOG = 4096  # a short one is a hidden queue in the kernel: full, it delays a client's first attempt by a second
_BURST = 64  # accepts in one turn of the loop
_PAUSE_S = 0.1
_LINGERING = 32  # refused sockets kept open for a moment, so that closing does not reset what they were told
_SPARE_DESCRIPTORS = 64  # files, pipes and the refused, beside connections
# What is accepted inherits these (tcp(7)): small pieces leave at once, and a peer that vanished is noticed in two
# minutes, also where nothing is sent.
_INHERITED = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4),
)
# ENOSPC: of what may be watched (epoll(7), max_user_watches).
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ENOSPC})


def raise_descriptor_limit() -> int:
    """Set the soft limit of open files to the hard one and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else 1 << 20


def affordable_connections(wanted: int, descriptors: int) -> int:
    """How many of ``wanted`` connections the descriptor limit allows; at least 1."""
    return max(1, min(wanted, descriptors - _SPARE_DESCRIPTORS))


def accept_queue() -> int:
    """How many connections may wait in the kernel to be accepted; Linux cuts the backlog to its own limit."""
    try:
        return min(BACKLOG, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    except (OSError, ValueError):
        return BACKLOG


def bind(host: str, port: int, *, insecure: bool, flag: str) -> list[socket.socket]:
    """Listening sockets for every address of ``host``; port 0 takes a free one. Raises ``StartupError``."""
    if not insecure and not is_loopback(host):
        raise StartupError(
            f"{host} is reachable from other machines and no keys are configured. Use 127.0.0.1, or give --key-set, or "
            "--insecure if the network itself keeps strangers out."
        )
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise StartupError(f"{host} is no address of this machine. Give {flag} an address such as 127.0.0.1.") from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(_listening(family, (address[0], port, *address[2:])))
            port = port or sockets[0].getsockname()[1]
    except OSError as error:
        for opened in sockets:
            opened.close()
        raise _bind_failure(error, host, port, flag) from None
    return sockets


def bind_unix(path: str, flag: str = "--unix") -> socket.socket:
    """A listening Unix socket that only this user may connect to (mode 0600). Raises ``StartupError``.

    What a server that died left behind is taken over; a socket that still answers, or any other file, is not.
    """
    _remove_stale(path, flag)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        opened.setblocking(False)
        opened.bind(path)
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        raise StartupError(
            f"cannot listen on {path} ({system_reason(error)}). Give {flag} a path in a "
            "folder that you may write to, at most 107 bytes long."
        ) from None
    finally:
        os.umask(before)
    return opened


def _remove_stale(path: str, flag: str) -> None:
    try:
        if not stat.S_ISSOCK(Path(path).lstat().st_mode):
            raise StartupError(f"{path} exists and is no socket. Give {flag} another path, or remove that file.")
    except OSError:
        return  # there is nothing, or bind will say what is wrong
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        refused = probe.connect_ex(path) == errno.ECONNREFUSED
    if not refused:
        raise StartupError(f"{path} is in use, perhaps by another zerolayer. Stop that, or give {flag} another path.")
    Path(path).unlink(missing_ok=True)


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _pass_on(opened)
        if family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        opened.bind(address)
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _pass_on(listening: socket.socket) -> None:
    for level, option, value in _INHERITED:
        listening.setsockopt(level, option, value)


def _bind_failure(error: OSError, host: str, port: int, flag: str) -> StartupError:
    if error.errno == errno.EADDRINUSE:
        return StartupError(
            f"port {port} on {host} is in use, perhaps by another zerolayer. Stop that, or choose another with {flag}."
        )
    if error.errno == errno.EACCES:
        return StartupError(f"port {port} needs privileges. Choose one above 1023 with {flag}.")
    return StartupError(
        f"cannot listen on {host} port {port} ({system_reason(error)}). Change {flag}."
    )


class Listener:
    """Accepts on ``sockets`` until ``stop``. ``make`` builds a connection, which joins ``connections`` itself.

    ``make`` may be told by name who the ``caller`` is, and what it has ``said``, which the connection is told next.
    With ``tls`` they speak it, and nothing else.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        make: Callable[..., asyncio.Protocol],
        connections: set[Peer],
        *,
        limit: int,
        busy: Callable[[], bytes],
        tls: Tls | None = None,
    ) -> None:
        self._sockets = sockets
        self._make = make
        self._connections = connections
        self._limit = limit
        self._busy = busy  # renders the reply to a connection over the limit
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[object]] = set()
        self._plain = PlainSockets(self._loop)
        self._refused: deque[socket.socket] = deque()
        self._reserve = _open_reserve()
        self._paused: asyncio.TimerHandle | None = None
        self._stopped = False
        for listening in sockets:
            if listening.family != socket.AF_UNIX:
                _pass_on(listening)  # others may have made it

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """What is listened on."""
        return tuple(self._sockets)

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._sockets[0].getsockname()[1])

    def start(self) -> None:
        """Begin to accept."""
        self._paused = None
        if not self._stopped:
            for listening in self._sockets:
                accept = self._accept_plain if self._is_plain(listening) else self._accept
                self._loop.add_reader(listening.fileno(), accept, listening)

    def rest(self) -> None:
        """Accept nothing until ``start``: whoever comes waits in the kernel."""
        if not self._stopped:
            self._pause()

    @property
    def opening(self) -> bool:
        """Whether connections were accepted that are not in the set yet: a turn or two, or a handshake."""
        return bool(self._opening)

    def drop_opening(self) -> None:
        """Close those."""
        opening, self._opening = self._opening, set()
        for each in opening:
            each.cancel()

    def take(self, accepted: socket.socket) -> None:
        """A connection that another process accepted."""
        self._take(accepted)

    def stop(self, *, kept: bool = False) -> None:
        """Accept no more; open connections stay. ``kept``: another process listens on the same sockets."""
        if self._stopped:
            return
        self._pause()
        self._stopped = True
        for listening in self._sockets:
            if listening.family == socket.AF_UNIX and not kept:
                Path(listening.getsockname()).unlink(missing_ok=True)
        for closed in (*self._sockets, *self._refused):
            closed.close()
        self._refused.clear()
        if self._reserve >= 0:
            os.close(self._reserve)
        self._plain.stop()

    def sweep(self) -> None:
        """Close the refused of the last period."""
        while self._refused:
            self._refused.popleft().close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_BURST):
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # it went away between SYN and accept
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._out_of_descriptors(listening)
                    return
                raise
            self._take(accepted)

    def _accept_plain(self, listening: socket.socket) -> None:
        """The same of TCP without TLS."""
        room = max(0, self._limit - len(self._connections))
        found, error = self._plain.watched.accept(listening.fileno(), _BURST, room)
        self._plain.begin_each(found[:room], self._make_of)
        for descriptor, _, _ in found[room:]:
            self._take(socket.socket(fileno=descriptor))
        if error in _EXHAUSTED:
            self._out_of_descriptors(listening)
        elif error:
            raise OSError(error, os.strerror(error))

    def _make_of(self, address: str, said: bytes) -> asyncio.Protocol:
        return self._make(caller=_caller_at(address), said=said)

    def _is_plain(self, opened: socket.socket) -> bool:
        return self._tls is None and opened.family != socket.AF_UNIX

    def _take_plain(self, accepted: socket.socket) -> None:
        try:
            address = str(accepted.getpeername()[0])
        except OSError:
            accepted.close()  # it went away
            return
        self._open_plain(accepted.detach(), address)

    def _open_plain(self, descriptor: int, address: str) -> None:
        try:
            self._plain.open(descriptor, address, partial(self._make, caller=_caller_at(address)))
        except OSError:
            _log.warning("a connection could not be watched and was closed")

    def _take(self, accepted: socket.socket) -> None:
        accepted.setblocking(False)
        if len(self._connections) + len(self._opening) >= self._limit:
            self._refuse(accepted)
            if len(self._refused) > _LINGERING:
                self._refused.popleft().close()
            return
        if self._is_plain(accepted):
            self._take_plain(accepted)
            return
        opening = self._loop.create_task(self._open(accepted))
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        try:
            if self._tls is None:
                await self._loop.connect_accepted_socket(self._make, accepted)
            else:
                await self._loop.connect_accepted_socket(
                    self._make,
                    accepted,
                    ssl=self._tls.context,
                    ssl_handshake_timeout=HANDSHAKE_S,
                    ssl_shutdown_timeout=SHUTDOWN_S,
                )
        except (OSError, asyncio.CancelledError):
            accepted.close()

    def _refuse(self, accepted: socket.socket) -> None:
        try:
            if self._tls is None:  # a handshake is more than a refusal may cost
                accepted.send(self._busy())
            accepted.shutdown(socket.SHUT_WR)
        except OSError:
            accepted.close()
            return
        self._refused.append(accepted)

    def _out_of_descriptors(self, listening: socket.socket) -> None:
        """Free the reserve to answer whoever is first in line, take it back, and look away for a moment."""
        _log.warning("no descriptors are left; new connections are refused. Raise the limit of open files (ulimit -n)")
        self.sweep()
        if self._reserve >= 0:
            os.close(self._reserve)
            self._reserve = -1
            try:
                accepted, _address = listening.accept()
                accepted.setblocking(False)
                self._refuse(accepted)
                self.sweep()
            except OSError:
                pass  # somebody else took the descriptor, or the client left
        self._reserve = _open_reserve()
        self._pause()
        self._paused = self._loop.call_later(_PAUSE_S, self.start)

    def _pause(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            return
        for listening in self._sockets:
            self._loop.remove_reader(listening.fileno())


@lru_cache(1024)
def _caller_at(address: str) -> Caller:
    return Caller(address=address)


def _open_reserve() -> int:
    """A descriptor that is kept for the moment when none is left; -1 if even that is too late."""
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1
