"""What a step has made for many streams leaves in one go, overtakes nothing, and what is not taken is not lost."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from echo_service import chat, expect_soon, read_reply

from zerolayer.front import lines, outbox
from zerolayer.front._native import send_each
from zerolayer.front.outbox import MANY, Outbox
from zerolayer.front.site import ConnectionLimits

Pairs = Callable[[int], list[tuple[socket.socket, socket.socket]]]


@pytest.fixture(autouse=True)
def two_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MANY", 2)
    monkeypatch.setattr(lines, "MANY", 2)


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    """Connected sockets: ours, which does not wait, and the client's."""
    opened: list[socket.socket] = []

    def make(count: int) -> list[tuple[socket.socket, socket.socket]]:
        made = [socket.socketpair() for _ in range(count)]
        for ours, theirs in made:
            ours.setblocking(False)
            opened.extend((ours, theirs))
        return made

    yield make
    for each in opened:
        each.close()


def fill(ours: socket.socket) -> int:
    """Send until the kernel takes no more; how many bytes that were."""
    sent = 0
    while True:
        try:
            sent += ours.send(b"." * 4096)
        except BlockingIOError:
            return sent


class Writer:
    """A connection of which ``waits`` says whether its transport has something to write yet."""

    def __init__(self, ours: socket.socket, *pieces: bytes, waits: bool = False) -> None:
        self.descriptor = ours.fileno()
        self._pieces = b"".join(pieces)
        self._waits = waits
        self.by_transport: list[bytes] = []

    def flush(self) -> None:
        self.by_transport.append(self._pieces)
        self._pieces = b""

    def take(self) -> bytes:
        if self._waits:
            self.flush()
        taken, self._pieces = self._pieces, b""
        return taken

    def write(self, data: bytes) -> None:
        self.by_transport.append(data)


def flushed(*writers: Writer) -> None:
    """The turn of the loop after all of them had something to write."""
    box, soon = Outbox(), []
    for writer in writers:
        box.add(writer, SimpleNamespace(call_soon=soon.append))  # type: ignore[arg-type]
    (flush,) = soon
    flush()


def test_each_socket_gets_its_own_piece(pairs):
    made = pairs(3)
    assert send_each([ours.fileno() for ours, _ in made], [b"one", b"two", b"three"]) == []
    assert [theirs.recv(10) for _, theirs in made] == [b"one", b"two", b"three"]


def test_a_socket_that_takes_nothing_is_told_and_keeps_nobody_waiting(pairs):
    (full, _), (free, theirs) = pairs(2)
    fill(full)
    assert send_each([full.fileno(), free.fileno()], [b"one", b"two"]) == [(0, 0)]
    assert theirs.recv(10) == b"two"


def test_of_a_piece_that_is_taken_in_part_it_is_told_how_much(pairs):
    ((ours, theirs),) = pairs(1)
    piece = bytes(range(256)) * 16_384
    ((place, sent),) = send_each([ours.fileno()], [piece])
    assert place == 0
    assert 0 < sent < len(piece)
    received = b""
    while len(received) < sent:
        received += theirs.recv(1 << 20)
    assert received == piece[:sent]


def test_a_client_that_has_gone_costs_the_others_nothing(pairs):
    (gone, client), (ours, theirs) = pairs(2)
    client.close()
    assert send_each([gone.fileno(), ours.fileno(), -1], [b"one", b"two", b"three"]) == [(0, 0), (2, 0)]
    assert theirs.recv(10) == b"two"


@pytest.mark.parametrize(
    ("descriptors", "pieces", "error"),
    [([1], [], ValueError), ([], [b"a"], ValueError), ([0], ["a"], TypeError), (["a"], [b"a"], TypeError)],
)
def test_anything_but_a_descriptor_for_each_piece_is_refused(descriptors, pieces, error):
    with pytest.raises(error):
        send_each(descriptors, pieces)


def test_what_was_made_in_a_turn_leaves_past_the_transports(pairs):
    made = pairs(3)
    writers = [Writer(ours, b"a%d" % place, b"b%d" % place) for place, (ours, _) in enumerate(made)]
    flushed(*writers)
    assert [theirs.recv(10) for _, theirs in made] == [b"a0b0", b"a1b1", b"a2b2"]
    assert [writer.by_transport for writer in writers] == [[], [], []]


def test_a_few_leave_past_the_transports_too(pairs, monkeypatch):
    monkeypatch.setattr(outbox, "MANY", MANY)
    made = pairs(3)
    flushed(*[Writer(ours, b"a") for ours, _ in made])
    assert [theirs.recv(10) for _, theirs in made] == [b"a", b"a", b"a"]


class Defective(Writer):
    """Fails at what ``fails`` names."""

    def __init__(self, ours: socket.socket, fails: str) -> None:
        super().__init__(ours, b"." * 10_000_000)
        self.was_cut = False

        def fail(*_: object) -> bytes:
            raise ValueError("a secret")

        setattr(self, fails, fail)

    def cut(self) -> None:
        self.was_cut = True


@pytest.mark.parametrize("fails", ["take", "write"])
def test_a_writer_that_fails_is_cut_and_costs_the_others_nothing(pairs, caplog, fails):
    (broken, _), (one, its), (other, theirs) = pairs(3)
    defective = Defective(broken, fails)
    flushed(Writer(one, b"before"), defective, Writer(other, b"behind"))
    assert [its.recv(10), theirs.recv(10)] == [b"before", b"behind"]
    assert defective.was_cut
    assert "secret" not in caplog.text


def test_what_a_transport_has_not_written_yet_is_not_overtaken(pairs):
    (ours, _), (other, theirs) = pairs(2)
    waits, free = Writer(ours, b"later", waits=True), Writer(other, b"now")
    flushed(waits, free)
    assert waits.by_transport == [b"later"]
    assert theirs.recv(10) == b"now"


def test_what_the_kernel_does_not_take_is_left_to_the_transport(pairs):
    (full, client), (other, _) = pairs(2)
    before = fill(full)
    slow = Writer(full, b"x" * 100)
    flushed(slow, Writer(other, b"now"))
    received = b""
    while len(received) < before:
        received += client.recv(1 << 20)
    assert received.strip(b".") + b"".join(slow.by_transport) == b"x" * 100


def test_streams_whose_clients_read_late_come_whole_and_in_order(serve):
    service = serve(slots=4, slot_tokens=32_768, step_us=0, section={"max_tokens": 16_000})
    texts = [f"{name}{'0123456789' * 300}" for name in "abcd"]
    clients = []
    for text in texts:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(10)
        client.connect(("127.0.0.1", service.port))
        client.sendall(chat(text, stream=True, max_tokens=4000))
        clients.append(client)
    expect_soon(lambda: service.free_slots() == 4 and service.running() == 0, 20)
    assert [read_reply(client).text for client in clients] == texts
    for client in clients:
        client.close()


def test_of_many_streams_the_one_whose_client_never_reads_is_cut(serve):
    limits = ConnectionLimits(unsent_bytes=65_536)
    service = serve(slots=2, slot_tokens=65_536, step_us=0, limits=limits, section={"max_tokens": 60_000})
    service.hold_steps()
    with service.connect() as reads, socket.socket() as never:
        never.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        never.connect(("127.0.0.1", service.port))
        for client, letter in ((never, "n"), (reads, "r")):
            client.sendall(chat(letter * 8000, stream=True, max_tokens=9000))
        expect_soon(lambda: service.running() == 2, 20)
        service.on_loop(lambda: _shorten_send_buffers(service))
        with ThreadPoolExecutor(1) as reader:
            reply = reader.submit(read_reply, reads)
            for steps in range(40, 9000, 40):
                service.step(40)
                expect_soon(lambda: reply.done() or (service.stepped() >= steps and not _unsent(service, reads)))  # noqa: B023
        assert reply.result().text == "r" * 8000
        service.step(1_000_000)
        expect_soon(lambda: service.free_slots() == 2, 20)
        assert not read_reply(never).complete


def _unsent(service, client: socket.socket) -> int:
    """Bytes that the kernel has not taken yet."""

    def bytes_left() -> int:
        for connection in service.server.connections:
            if connection._transport.get_extra_info("socket").getpeername() == client.getsockname():
                return len(connection._unsent) + connection._transport.get_write_buffer_size()
        return 0

    return service.on_loop(bytes_left)


def _shorten_send_buffers(service) -> None:
    for connection in service.server.connections:
        connection._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
