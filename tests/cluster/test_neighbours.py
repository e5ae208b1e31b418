"""The thread that keeps the list: it sleeps while there is nothing to ask, and nothing that hangs keeps it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from zerolayer.cluster.directory import Directory, Found
from zerolayer.cluster.membership import Listed, NodeList
from zerolayer.cluster.neighbours import Neighbours
from zerolayer.cluster.question import Asker, Word
from zerolayer.wire.load import Load

OWN = Listed("http://127.0.0.1:9", "ready")


class Source:
    """Names one address; ``hangs`` until it is told not to."""

    name = "source"

    def __init__(self, *addresses: str, hangs: bool = False) -> None:
        self.addresses = addresses
        self.asked = threading.Event()
        self.go_on = threading.Event()
        if not hangs:
            self.go_on.set()

    def look(self) -> Found:
        self.asked.set()
        self.go_on.wait(20)
        return Found(self.addresses)


@pytest.fixture
def start() -> Iterator[Callable[..., Neighbours]]:
    started = []

    def begin(*sources: Source) -> Neighbours:
        neighbours = Neighbours(Directory(sources), Asker(OWN.address), lambda: OWN, time.monotonic_ns)
        neighbours.start()
        started.append(neighbours)
        return neighbours

    yield begin
    for neighbours in started:
        neighbours.close()


def soon(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "zerolayer-peers"]


def test_a_node_that_is_alone_asks_nobody(start) -> None:
    before = len(workers())
    neighbours = start()
    soon(lambda: neighbours.view.nodes == (OWN,))
    assert neighbours.view.epoch == 0
    assert len(workers()) == before


def test_what_a_source_names_is_listed_and_asked(start) -> None:
    neighbours = start(Source("http://127.0.0.1:1"))
    soon(lambda: len(neighbours.view.nodes) == 2)
    assert neighbours.view.epoch > 0
    assert neighbours.elsewhere(8) == ()


def test_the_end_does_not_wait_for_a_source_that_hangs(start) -> None:
    source = Source(hangs=True)
    neighbours = start(source)
    assert source.asked.wait(10)
    neighbours.close()
    assert not source.go_on.is_set()
    assert all(thread.daemon for thread in workers())
    source.go_on.set()


def test_a_source_that_hangs_keeps_nobody_from_announcing_himself(start) -> None:
    source = Source(hangs=True)
    neighbours = start(source)
    assert source.asked.wait(10)
    neighbours._asker.ask = lambda dial, epoch, *, named: asked.append(dial)
    asked: list[str] = []
    neighbours.announced("http://127.0.0.1:1", proven=False)
    soon(lambda: asked == ["http://127.0.0.1:1"])
    source.go_on.set()


@pytest.mark.parametrize("proven", [True, False])
def test_others_are_asked_because_of_a_node_s_list_only_if_it_proved_to_be_a_node(start, proven) -> None:
    teller, told = "http://127.0.0.1:1", "http://127.0.0.1:2"
    nodes = NodeList(5, teller, (Listed(teller, "ready"), Listed(told, "ready")))
    asked = []

    def ask(dial: str, epoch: int, *, named: bool) -> Word:
        asked.append(dial)
        return Word(True, "", Load(1, 0, 1.0, 5), nodes)

    neighbours = start()
    neighbours._asker.ask = ask
    neighbours.announced(teller, proven=proven)
    soon(lambda: asked.count(teller) == 2)
    assert (told in asked) is proven
