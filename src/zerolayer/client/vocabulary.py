"""The vocabulary that a service publishes, so that text is tokenised here rather than there.

It needs the tokeniser of the server's room ``text`` (packages ``tiktoken``, ``regex`` and ``msgspec``); where they are
missing the server tokenises. The file is asked for again now and then; its ``ETag`` makes that a reply without a body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final
from urllib.parse import quote

from zerolayer.errors import ZerolayerError

Encode = Callable[[str], list[int]]

_NEEDED: Final = ("msgspec", "regex", "tiktoken")
OTHER_VOCABULARY: Final = 412  # the status of a refusal because of it
FRESH_NS: Final = 60_000_000_000  # for so long a vocabulary is not asked for again
_AGAIN_NS: Final = 600_000_000_000  # nor one that could not be had


def can_tokenise() -> bool:
    """Whether the tokeniser is installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


def path_of(model: str) -> str:
    """Where the vocabulary of ``model`` is published."""
    return f"/v1/models/{quote(model, safe='')}/vocabulary"


@dataclass
class Held:
    """What is known of one model's vocabulary; ``encode`` None: it could not be had, or is of no use here."""

    encode: Encode | None = None
    etag: str = ""
    asked_ns: int | None = None

    def is_due(self, now_ns: int) -> bool:
        """Whether to ask for it (again)."""
        wait_ns = FRESH_NS if self.encode is not None else _AGAIN_NS
        return self.asked_ns is None or now_ns - self.asked_ns >= wait_ns

    def forget(self) -> None:
        """A server says that it has another one."""
        self.encode, self.etag, self.asked_ns = None, "", None

    def headers(self) -> dict[str, str]:
        """Of the request for it."""
        return {"if-none-match": self.etag} if self.etag else {}

    def take(self, now_ns: int, status: int, etag: str, encode: Encode | None) -> None:
        """A reply: 304 says that what is held is right; ``encode`` is made from a new one's body."""
        self.asked_ns = now_ns
        if status != 304:
            self.encode, self.etag = encode, etag if encode is not None else ""


def tokeniser(file: bytes) -> Encode | None:
    """The encoder of a published vocabulary, as the server has it for plain text; None where it is not to be had.

    Takes some tenths of a second: not for an event loop.
    """
    if not can_tokenise():
        return None
    from zerolayer.text.encode import build_encoder
    from zerolayer.text.vocabulary_file import unpack

    try:
        vocabulary = unpack(file)
        encoder = build_encoder(vocabulary)
    except ZerolayerError:
        return None  # damaged, or of a kind that only the server's own extras can read

    def encode(text: str) -> list[int]:
        ids = encoder.encode(text)
        if vocabulary.bos_id is not None and (vocabulary.add_bos or not ids):
            ids.insert(0, vocabulary.bos_id)
        return ids

    return encode
