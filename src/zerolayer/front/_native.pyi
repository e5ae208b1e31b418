"""What the door does for all streams of a step, compiled; implemented in src/zerolayer/native/front_module.cpp."""

from collections.abc import Mapping, Sequence
from typing import final

from zerolayer.front.lines import Frames, Line
from zerolayer.front.outbox import Writer
from zerolayer.model.engine import SampledToken

def send_each(descriptors: list[int], pieces: list[bytes], let_go: bool = True, /) -> list[tuple[int, int]]:
    """Offer each piece to its socket once, without waiting; ``let_go``: and without the interpreter's lock.

    Returns (place, bytes sent) of each that was not sent as a whole, whatever the reason. Raises ``ValueError`` where
    the lists are not of one length, ``TypeError`` for anything but integers and bytes.
    """

@final
class Growth:
    """What a step's plain tokens become. ``types`` are the classes that it reads, by their names.

    They are ``SampledToken``, ``Line``, ``Transcript``, ``Decoder``, ``SocketOutlet``, ``FrameOutlet``, ``Sender`` and
    ``Stream``. Raises ``TypeError`` where one of them does not keep in ``__slots__`` what is read of it.
    """

    def __init__(self, types: Mapping[str, type], /) -> None: ...
    def grow(
        self, tokens: Sequence[SampledToken], lines: list[Line | None], ended_ns: int, /
    ) -> tuple[list[SampledToken], int]:
        """Take each token whose slot has a line, if its text is all that it brings and its outlet is clear.

        It is counted in its transcript, and its bytes are kept for ``send``. Returns the tokens that are left to
        ``Running.push``, and how many of those that were taken came later than their clients allow.
        """

    def send(self, many: int, /) -> tuple[list[tuple[Writer, bytes]], list[Frames]]:
        """Offer what was taken to the kernel, in one send for each connection; ``many`` ones without the lock.

        Returns what the kernel did not take, and the HTTP/2 connections that have their frames back, since something
        is before them.
        """

class LineNumbers:
    """Numbers that C++ reads and writes in place; 0 at first."""

    last_ns: int
    gap_ns: int

class TranscriptNumbers:
    """As ``LineNumbers``."""

    completion_tokens: int
    token_id: int

class SocketNumbers:
    """As ``LineNumbers``; ``chunked`` and ``sure`` are 0 or 1."""

    descriptor: int
    chunked: int
    sure: int
