"""``zerolayer serve --devices A,B,...``: starts a node for each device, and starts it again when it ends.

No request passes through this process: the nodes have ports of their own, serve on when it is killed, and learn of one
another as nodes on different machines do. They tell it that they are ready and alive as a service tells its manager
(sd_notify(3)), each on a socket of its own; it tells its own manager in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zerolayer
from zerolayer.contract import Effective
from zerolayer.observe.logs import start_logging
from zerolayer.serve.child import SILENCE_NS, Action, Child, Event, State
from zerolayer.serve.devices import Device, devices
from zerolayer.serve.service_manager import ServiceManager
from zerolayer.serve.takeover.heirs import PARENT

_log = logging.getLogger("zerolayer.serve")

_LOOK_S: Final = 0.2
_LONGEST_DRAIN_S: Final = 20.0  # a node's own limits end before
_MESSAGE_BYTES: Final = 4096
_HOPELESS: Final = (1, 2)  # exit codes of a node that cannot start, and will not the next time
_LEVELS: Final = {True: logging.INFO, False: logging.WARNING}


@dataclass
class _Node:
    device: Device
    inbox: socket.socket
    notify: str
    child: Child
    process: subprocess.Popen[bytes] | None = None
    status: int = 0


def main(effective: Effective, given: Mapping[str, str], switches: Sequence[str]) -> int:
    """Until SIGINT or SIGTERM, or until no node can be started; returns the exit code. Raises ``StartupError``.

    ``given`` and ``switches``: the flags, as ``devices.devices`` takes them.
    """
    log = effective.contract.log
    start_logging(log.format, log.level, access=False)
    wanted = devices(effective.contract, given, switches)
    with tempfile.TemporaryDirectory(prefix="zerolayer-") as folder:
        return asyncio.run(Parent(wanted, Path(folder), os.environ).run())


class Parent:
    """Owns the processes. ``folder`` is for the sockets that only this user may write to."""

    def __init__(
        self, wanted: Sequence[Device], folder: Path, environ: Mapping[str, str], silence_ns: int = SILENCE_NS
    ) -> None:
        self._silence_ns = silence_ns
        self._environ = {name: value for name, value in environ.items() if name != "WATCHDOG_PID"}
        self._nodes = [
            _node(device, str(folder / str(place)), Child(silence_ns)) for place, device in enumerate(wanted)
        ]
        self._stopping = False
        self._told = False  # people and the manager, that all are ready
        self._ever_ready = False  # any of them
        self._killed_ns: int | None = None

    async def run(self) -> int:
        """The exit code: 0, or that of the nodes where it was they that ended."""
        loop = asyncio.get_running_loop()
        manager = ServiceManager(os.environ, lambda: any(node.child.state is State.READY for node in self._nodes))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop, manager)
        for number in (signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, self._forward, number)
        for node in self._nodes:
            loop.add_reader(node.inbox, self._hear, node)
        try:
            while not all(node.child.state is State.GONE for node in self._nodes):
                self._look(manager)
                await asyncio.sleep(_LOOK_S)
        finally:
            manager.close()
            for node in self._nodes:
                loop.remove_reader(node.inbox)
                node.inbox.close()
        return max(node.status for node in self._nodes)

    def _look(self, manager: ServiceManager) -> None:
        now = time.monotonic_ns()
        for node in self._nodes:
            self._reap(node, now)
            event = node.child.look(now)
            if event is not None:
                self._take(node, event)
        if not self._told and all(node.child.state is State.READY for node in self._nodes):
            self._told = True
            print(self._greeting(), flush=True)
            manager.ready()
        if self._killed_ns is not None and now >= self._killed_ns:
            self._killed_ns = None
            self._forward(signal.SIGKILL)

    def _reap(self, node: _Node, now: int) -> None:
        status = None if node.process is None else node.process.poll()
        if status is None:
            return
        node.process, was = None, node.child.state
        if was is State.LEAVING and status == -signal.SIGTERM:
            status = 0  # it was told to end before it had begun
        expected = was is State.LEAVING and status == 0
        _log.log(_LEVELS[expected], "the node of device %s ended with status %d", node.device.name, status)
        if was is State.LEAVING:
            node.status = 128 - status if status < 0 else status
        if status in _HOPELESS and not self._ever_ready:
            node.status = status
            self._end()
        if self._take(node, Event.EXITED) is Action.PAUSE:
            _log.warning("it is started again in %.2f s", (node.child.due_ns - now) / 1e9)
        if self._stopping:
            self._take(node, Event.STOP)

    def _take(self, node: _Node, event: Event) -> Action:
        action = node.child.take(event, time.monotonic_ns())
        if action is Action.START:
            watchdog = {"NOTIFY_SOCKET": node.notify, "WATCHDOG_USEC": str(self._silence_ns // 1000)}
            watchdog[PARENT] = str(os.getpid())
            # A session of its own: Ctrl-C reaches this process alone, and each node hears of it once.
            node.process = subprocess.Popen(  # noqa: S603 - this interpreter, with flags that were checked
                node.device.command, env={**self._environ, **watchdog}, stdin=subprocess.DEVNULL, start_new_session=True
            )
        elif action is Action.TELL and node.process is not None:
            self._ever_ready = True
            _log.info("the node of device %s is ready: %s, pid %d", *_told(node, node.process.pid))
        elif action is Action.KILL and node.process is not None:
            _log.error("the node of device %s gives no sign of life; it is killed", node.device.name)
            node.process.kill()
        elif action is Action.END and node.process is not None:
            node.process.terminate()
        return action

    def _hear(self, node: _Node) -> None:
        try:
            lines = node.inbox.recv(_MESSAGE_BYTES).split(b"\n")
        except BlockingIOError:
            return
        node.child.alive(time.monotonic_ns())
        if b"READY=1" in lines:
            self._take(node, Event.TOLD_READY)

    def _stop(self, manager: ServiceManager) -> None:
        manager.stopping()
        self._end()

    def _end(self) -> None:
        self._stopping = True
        self._killed_ns = time.monotonic_ns() + int(_LONGEST_DRAIN_S * 1e9)
        for node in self._nodes:
            self._take(node, Event.STOP)

    def _forward(self, number: int) -> None:
        for node in self._nodes:
            if node.process is not None:
                node.process.send_signal(number)

    def _greeting(self) -> str:
        width = max(len(node.device.name) for node in self._nodes)
        lines = [f"zerolayer {zerolayer.__version__}: {len(self._nodes)} nodes are ready, none of which needs another"]
        for node in self._nodes:
            device = node.device
            lines.append(f"  cores {device.name:<{width}}  {device.address}/v1  metrics {device.admin}/metrics")
        addresses = ", ".join(f'"{node.device.address}"' for node in self._nodes)
        return "\n".join([*lines, f"  zerolayer.Client([{addresses}])", ""])


def _node(device: Device, path: str, child: Child) -> _Node:
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    inbox.setblocking(False)
    inbox.bind(path)
    return _Node(device, inbox, path, child)


def _told(node: _Node, pid: int) -> tuple[str, str, int]:
    return node.device.name, node.device.address, pid
