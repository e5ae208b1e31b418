"""Tool calls out of an answer while it grows: text in, pieces of calls out, without waiting for any end.

Sans-IO. The result does not depend on how the answer was cut into tokens, but for where pieces are cut. A call is
shown as soon as its name is read and is a tool's; what looks like a call and turns out to be none is text. Once a call
has been shown, text around calls is dropped: no API has a place for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum, auto
from typing import Final

from zerolayer.text.call_object import Call, CallObject, Malformed, NamedCall
from zerolayer.text.tool_format import ToolFormat
from zerolayer.wire.schema import CallDelta

_SPACE: Final = " \t\r\n"


class _At(Enum):
    TEXT = auto()
    BEFORE = auto()  # after a marker, or at the start of an answer that may be a bare call
    CALL = auto()
    AFTER = auto()  # after a call: another one may follow without a marker


class ToolCallParser:
    """The calls of one answer. ``names``: the tools that may be called; ``new_id`` makes the id of a call."""

    def __init__(self, form: ToolFormat, names: Collection[str], new_id: Callable[[], str]) -> None:
        self._form = form
        self._names = names
        self._new_id = new_id
        self._at = _At.BEFORE if form.bare else _At.TEXT
        self._held = ""  # text that may still become a marker
        self._raw: list[str] = []  # what a call is made of that is not shown yet, its marker included
        self._call: Call | None = None
        self._shown = False  # whether the call is
        self._deltas: list[CallDelta] = []
        self.calls = 0

    def push(self, text: str) -> str:
        """Take more of the answer; returns the text that may be shown."""
        shown: list[str] = []
        at = 0
        while at < len(text):
            if self._at is _At.TEXT:
                at = self._text(text, at, shown)
            elif self._at is _At.CALL:
                at = self._in_call(text, at, shown)
            else:
                at = self._around(text[at], at, shown)
        self._pass_on()
        return "".join(shown)

    def flush(self) -> str:
        """The answer is complete: what was held back and is text after all."""
        left = "".join([*self._raw, self._held])
        self._raw, self._held, self._at = [], "", _At.TEXT
        return "" if self.calls else left

    def take(self) -> list[CallDelta]:
        """Pieces of calls since the last time."""
        taken, self._deltas = self._deltas, []
        return taken

    def _show(self, text: str, shown: list[str]) -> None:
        if not self.calls:
            shown.append(text)

    def _text(self, text: str, at: int, shown: list[str]) -> int:
        """Text up to the next marker; a beginning of one is held back, and white space, which calls do not leave."""
        marker = self._form.marker
        held = self._held + text[at:]
        found = held.find(marker)
        if found < 0:
            rest = held[: len(held) - _begun(held, marker)].rstrip()
            self._show(rest, shown)
            self._held = held[len(rest) :]
            return len(text)
        before = held[:found].rstrip()
        self._show(before, shown)
        self._held = ""
        self._raw = [held[len(before) : found + len(marker)]]
        self._at = _At.BEFORE
        return len(text) - (len(held) - found - len(marker))

    def _around(self, char: str, at: int, shown: list[str]) -> int:
        """White space and punctuation around calls; the first other character decides."""
        after = self._at is _At.AFTER
        if char in (_SPACE + ",;" if after else _SPACE + "[" if self._form.before == "[" else _SPACE):
            if not after:
                self._raw.append(char)
            return at + 1
        starts = not after if self._form.named else char == "{" and not (after and self._form.marks_each)
        if starts:
            self._call = NamedCall() if self._form.named else CallObject()
            self._shown = False
            self._at = _At.CALL
        else:
            self._give_up(shown)
        return at

    def _give_up(self, shown: list[str]) -> None:
        """It is no call, or no more one: what was not shown as a call is text."""
        self._show("".join(self._raw), shown)
        self._raw = []
        self._call = None
        self._at = _At.TEXT

    def _in_call(self, text: str, at: int, shown: list[str]) -> int:
        call = self._call
        assert call is not None  # noqa: S101 - the state says so
        while at < len(text):
            try:
                call.push(text[at])
            except Malformed:
                self._pass_on()
                self._give_up(shown)
                return at  # the marker may begin here
            if not self._shown:
                self._raw.append(text[at])
                if call.name is not None:
                    if call.name not in self._names:
                        self._give_up(shown)
                        return at + 1
                    self._open(call.name)
            at += 1
            if call.done:
                if not self._shown:
                    self._give_up(shown)
                else:
                    self._pass_on()
                    self._call = None
                    self._at = _At.AFTER
                return at
        return at

    def _open(self, name: str) -> None:
        self._deltas.append(CallDelta(self.calls, self._new_id(), name))
        self.calls += 1
        self._shown = True
        self._raw = []

    def _pass_on(self) -> None:
        """The arguments that came since the last time, in one piece; the first goes with the name."""
        if self._call is None or not self._shown:
            return
        arguments = self._call.take()
        if arguments:
            self._deltas.append(CallDelta(self.calls - 1, arguments=arguments))


def _begun(text: str, marker: str) -> int:
    """The length of the longest beginning of ``marker`` that ends ``text``."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
