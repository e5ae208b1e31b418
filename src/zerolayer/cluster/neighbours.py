"""Keeps the list of nodes current: a thread that asks sources for addresses, and every node how it is.

The event loop never waits for it. It reads ``view``, a frozen list that is replaced as a whole. The thread owns the
``Membership`` and sleeps while there is nothing to ask; questions run on up to sixteen others, since a node or a
name server that hangs must not keep the others waiting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from zerolayer.cluster.directory import Directory
from zerolayer.cluster.membership import LIVING, Listed, Membership, NodeList, Peer, State
from zerolayer.cluster.question import Asker, Word

_log = logging.getLogger("zerolayer.cluster")

_T = TypeVar("_T")
_THREADS: Final = 16
_PUBLISH_NS: Final = 100_000_000  # between two lists: a large fleet's answers come many a second
_LETTERS: Final = 256  # announcements that wait at most
_LEVELS: Final = {
    State.UNHEARD: logging.INFO,
    State.READY: logging.INFO,
    State.UNREADY: logging.INFO,
    State.AWAY: logging.WARNING,
}


class Neighbours:
    """``own`` gives what this node last said of itself; it is called on the thread."""

    def __init__(
        self, directory: Directory, asker: Asker, own: Callable[[], Listed], clock_ns: Callable[[], int]
    ) -> None:
        self._directory = directory
        self._asker = asker
        self._own = own
        self._clock_ns = clock_ns
        self._members = Membership(asker.own)
        self._mailbox: SimpleQueue[Callable[[int], None]] = SimpleQueue()
        self._looking = False
        self._stopping = False
        self._published_ns: int | None = None
        self._dirty = True
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._workers = 0
        self._under_way = 0
        self._thread = threading.Thread(target=self._run, name="zerolayer-neighbours", daemon=True)
        self.view = NodeList(0, asker.own, (own(),))

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def announced(self, address: str, *, proven: bool) -> None:
        """A node told its address; whether it is one is found out by asking there. Any thread.

        ``proven``: it showed that it is of this fleet, so that it is believed what it tells of others.
        """
        if self._mailbox.qsize() < _LETTERS:
            self._mailbox.put(lambda now_ns: self._members.hear([address], now_ns, proven=proven))

    def changed(self) -> None:
        """What this node says of itself is new. Any thread."""
        self._mailbox.put(lambda _: None)

    def elsewhere(self, most: int) -> tuple[str, ...]:
        """Other nodes that take work, the one that would start it first first."""
        view = self.view
        others = [node for node in view.nodes if node.address != view.self and node.state == State.READY.value]
        others.sort(key=lambda node: (0 if node.free else node.next_ms, -node.free * node.derate))
        return tuple(node.address for node in others[:most])

    def close(self) -> None:
        """No more questions; those that are on their way end within their second."""
        self._mailbox.put(self._stop)
        if self._thread.is_alive():
            self._thread.join()
        for _ in range(self._workers):
            self._tasks.put(None)
        self._asker.close()

    def _stop(self, _: int) -> None:
        self._stopping = True

    def _run(self) -> None:
        while not self._stopping:
            self._turn(self._clock_ns())
            self._read()

    def _read(self) -> None:
        """All letters; sleeps until there is one, or a question is due."""
        publish_ns = self._published_ns + _PUBLISH_NS if self._dirty and self._published_ns is not None else None
        due = [self._members.next_ns(), None if self._looking else self._directory.next_ns(), publish_ns]
        due_ns = min((each for each in due if each is not None), default=None)
        patience_s = None if due_ns is None else max(0.0, (due_ns - self._clock_ns()) / 1e9)
        try:
            self._mailbox.get(timeout=patience_s)(self._clock_ns())
            self._dirty = True
            while True:
                self._mailbox.get_nowait()(self._clock_ns())
        except Empty:
            return

    def _turn(self, now_ns: int) -> None:
        if not self._looking and self._directory.due(now_ns):
            self._looking = True
            self._submit(self._found, partial(self._directory.look, now_ns))
        for peer in self._members.due(now_ns):
            ask = partial(self._asker.ask, peer.dial, self.view.epoch, named=peer.named)
            self._submit(partial(self._heard, peer), ask)
        if self._dirty and (self._published_ns is None or now_ns - self._published_ns >= _PUBLISH_NS):
            self._dirty, self._published_ns = False, now_ns
            self._members.forget(now_ns)
            self.view = self._members.listed(now_ns, self._own())

    def _submit(self, tell: Callable[[_T, int], None], work: Callable[[], _T]) -> None:
        """Run ``work`` on another thread; what came of it is told in a letter."""

        def run() -> None:
            result = work()
            self._mailbox.put(lambda now_ns: over(result, now_ns))

        def over(result: _T, now_ns: int) -> None:
            self._under_way -= 1
            tell(result, now_ns)

        self._under_way += 1
        self._tasks.put(run)
        if self._workers < min(_THREADS, self._under_way):
            self._workers += 1
            # Not a pool of the standard library: at the end of the process those wait for a name server that hangs.
            threading.Thread(target=_work, args=(self._tasks,), name="zerolayer-peers", daemon=True).start()

    def _found(self, found: list[str], now_ns: int) -> None:
        self._looking = False
        self._members.name(found, now_ns)

    def _heard(self, peer: Peer, word: Word | None, now_ns: int) -> None:
        was = peer.state
        if word is None:
            self._members.missed(peer.dial, now_ns)
        else:
            said = peer.word
            if word.nodes is not None:
                said = next((node for node in word.nodes.nodes if node.address == word.nodes.self), said)
                if peer.trusted:
                    living = [node.address for node in word.nodes.nodes if node.state in LIVING]
                    self._members.hear(living, now_ns)
            self._members.answered(peer.dial, now_ns, word.says, word.of(said), ready=word.ready)
        if peer.state is not was and peer.address != self._asker.own:
            _log.log(_LEVELS[peer.state], "the node %s is %s, was %s", peer.address, peer.state.value, was.value)


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    while (task := tasks.get()) is not None:
        task()
