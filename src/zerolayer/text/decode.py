"""Token ids to text as they come, never half a character.

A token's text is looked up; only tokens that hold a part of a character (313 of SmolLM2's 49,152) and what follows them
go through an incremental UTF-8 decoder. Invalid bytes become U+FFFD exactly as ``bytes.decode(errors="replace")`` would
make them of the whole.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from zerolayer.text.vocabulary import Vocabulary

_new_utf8 = codecs.getincrementaldecoder("utf-8")


class Decoder:
    """The text of one generation. Tokens that steer (control tokens) and ids outside the vocabulary show nothing.

    ``texts`` takes the place of the vocabulary's.
    """

    __slots__ = ("_pieces", "_size", "_texts", "partial")

    def __init__(self, vocabulary: Vocabulary, texts: Sequence[str | None] | None = None) -> None:
        self._pieces = vocabulary.pieces
        self._texts = vocabulary.texts if texts is None else texts
        self._size = vocabulary.size
        self.partial: codecs.IncrementalDecoder | None = None  # set while a character is incomplete

    def push(self, token_id: int) -> str:
        """The whole characters that this token completes; empty while one is incomplete."""
        if not 0 <= token_id < self._size:
            return ""
        text = self._texts[token_id]
        utf8 = self.partial
        if utf8 is None:
            if text is not None:
                return text
            utf8 = self.partial = _new_utf8("replace")
        elif text == "":
            return ""
        text = utf8.decode(self._pieces[token_id])
        if not utf8.getstate()[0]:
            self.partial = None
        return text

    def flush(self) -> str:
        """What is left when no token follows: U+FFFD for an incomplete character, else nothing."""
        utf8, self.partial = self.partial, None
        return utf8.decode(b"", True) if utf8 else ""
