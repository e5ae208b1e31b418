"""Replies that grow by the text of their tokens and nothing else, which most do: a step's tokens at once, natively.

From its first token on such a reply has a *line*: the constant bytes around a token's text, and the way out. What
``Growth`` (``native/front_growth.hpp``) makes of its tokens is what ``Reply.push`` makes of them, in the same places;
so any token may go either way, and whatever is not plain goes there: a last token, a part of a character, a stream
whose client is behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

import msgspec

from zerolayer.front._native import Growth, LineNumbers, SocketNumbers
from zerolayer.front.outbox import MANY, TOGETHER, Writer, or_cut
from zerolayer.front.transcript import Transcript
from zerolayer.model.engine import SampledToken
from zerolayer.text.decode import Decoder
from zerolayer.wire.http2_sending import Sender
from zerolayer.wire.http2_stream import Stream

MOST: Final = 65_536  # tokens whose bytes are remembered: some 6 MB. Of a vocabulary that is larger, the first ones


class Words:
    """What is shown of each token, by ``render`` of its id and its text; nearly every one was rendered before.

    They stand in a list by token: of tokens that are spread over a vocabulary, a look into a dictionary costs more
    memory that is not in the processor's caches than anything else that is done for a token. ``texts`` are a
    vocabulary's; empty bytes are not sent.
    """

    __slots__ = ("_render", "_texts", "known")

    def __init__(self, texts: Sequence[str | None], render: Callable[[int, str], bytes]) -> None:
        self._texts = texts
        self._render = render
        self.known: list[bytes | None] = [None] * min(len(texts), MOST)

    def of(self, token_id: int) -> bytes | None:
        """Of a token that ``known`` has a place for; None where its text depends on its neighbours."""
        text = self._texts[token_id]
        if text is None:
            return None
        word = self.known[token_id]
        if word is None:
            word = self.known[token_id] = self._render(token_id, text)
        return word

    def showing(self, token_id: int, text: str) -> bytes:
        """Of a token with this text, which may be another than its own."""
        own = 0 <= token_id < len(self.known) and self._texts[token_id] == text
        return (self.of(token_id) if own else None) or self._render(token_id, text)


class Around(msgspec.Struct, frozen=True):
    """What all tokens of a reply look like: a word between constant bytes."""

    words: Words
    before: bytes = b""
    after: bytes = b""


class SocketOutlet(SocketNumbers):
    """A connection that is one reply's, with a socket of its own: each piece is sent to it.

    ``clear`` says whether the kernel may have the next bytes now. It is asked when that is not ``sure``: as long as the
    kernel takes all and no token goes another way, nothing can wait. ``chunked``: a piece is a chunk of HTTP/1.1.
    """

    __slots__ = ("clear", "writer")

    def __init__(self, writer: Writer, clear: Callable[[], bool], *, chunked: bool) -> None:
        self.writer = writer
        self.clear = clear
        self.descriptor = writer.descriptor
        self.chunked = chunked


class Frames(Writer, Protocol):
    """An HTTP/2 connection."""

    def wake(self) -> None:
        """Write what was collected in the next turn of the loop."""

    def free_descriptor(self) -> int:
        """Of its socket, where the kernel may have the next bytes now; else -1.

        Who was told a socket's asks again when the ``free`` of the connection's ``Sender`` is 0.
        """


class FrameOutlet:
    """A stream of an HTTP/2 connection: pieces of all of its streams leave together."""

    __slots__ = ("connection", "sender", "stream")

    def __init__(self, connection: Frames, sender: Sender, stream: Stream) -> None:
        self.connection = connection
        self.sender = sender
        self.stream = stream


Outlet = SocketOutlet | FrameOutlet


class Line(LineNumbers):
    """One reply. ``last_ns`` is when its last token came, ``gap_ns`` how long its client allows between two."""

    __slots__ = ("after", "before", "decoder", "known", "outlet", "render", "transcript")

    def __init__(self, transcript: Transcript, around: Around, outlet: Outlet, *, last_ns: int, gap_ns: int) -> None:
        self.transcript = transcript
        self.decoder = transcript.decoder
        self.before = around.before
        self.after = around.after
        self.known = around.words.known
        self.render = around.words.of
        self.outlet = outlet
        self.last_ns = last_ns
        self.gap_ns = gap_ns


_TYPES: Final = (SampledToken, Line, Transcript, Decoder, SocketOutlet, FrameOutlet, Sender, Stream)


class Lines:
    """Of ``slots`` slots. All on the loop; what lies between ``take`` and ``send`` is the same step's."""

    def __init__(self, slots: int) -> None:
        self._growth = Growth({each.__name__: each for each in _TYPES})
        self._lines: list[Line | None] = [None] * slots

    def add(self, slot: int, line: Line) -> None:
        """The slot's further tokens may be taken."""
        self._lines[slot] = line

    def drop(self, slot: int) -> None:
        """The slot's reply has ended. Idempotent."""
        self._lines[slot] = None

    def take(self, tokens: Sequence[SampledToken], ended_ns: int) -> tuple[Sequence[SampledToken], int]:
        """What can be taken of a step's tokens; returns the others, and how many of those taken came too late."""
        return self._growth.grow(tokens, self._lines, ended_ns)

    def send(self) -> None:
        """Send what was taken."""
        left, waiting = self._growth.send(MANY, TOGETHER)
        for writer, rest in left:
            or_cut(writer, partial(writer.write, rest))
        for connection in waiting:
            or_cut(connection, connection.wake)
