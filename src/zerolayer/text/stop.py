"""Stop strings in a stream: found across token borders, and never shown in part.

The Knuth-Morris-Pratt automaton of each stop string reads every character once, so the result does not depend on how
the text was cut into tokens. Text is held back only while it may still become a stop string.
"""

from __future__ import annotations

from collections.abc import Iterable


def _borders(pattern: str) -> list[int]:
    """For each prefix, the length of its longest proper prefix that is also its suffix."""
    borders = [0] * len(pattern)
    matched = 0
    for index in range(1, len(pattern)):
        while matched and pattern[index] != pattern[matched]:
            matched = borders[matched - 1]
        if pattern[index] == pattern[matched]:
            matched += 1
        borders[index] = matched
    return borders


class StopMatcher:
    """Watches one generation for its stop strings.

    The first one that is completed ends the text right before it (of several completed by the same character: the
    longest). Empty stop strings are ignored. ``met`` is that stop string, "" until there is one.
    """

    __slots__ = ("_held", "_matched", "_patterns", "met")

    def __init__(self, stops: Iterable[str]) -> None:
        self._patterns = [(stop, _borders(stop)) for stop in dict.fromkeys(stops) if stop]
        self._matched = [0] * len(self._patterns)
        self._held = ""
        self.met = ""

    def push(self, text: str) -> tuple[str, bool]:
        """The text that may be shown now, and whether a stop string has been met (then nothing more is shown)."""
        if self.met:
            return "", True
        if not self._patterns:
            return text, False
        held = self._held + text
        for end, char in enumerate(text, len(self._held) + 1):
            if self._advance(char):
                self._held = ""
                return held[: end - len(self.met)], True
        keep = len(held) - max(self._matched)
        self._held = held[keep:]
        return held[:keep], False

    def flush(self) -> str:
        """What was held back and turned out to be no stop string."""
        held, self._held = self._held, ""
        return held

    def _advance(self, char: str) -> bool:
        """Feed one character to every automaton; ``met`` is the longest stop string completed, if any is."""
        for index, (pattern, borders) in enumerate(self._patterns):
            matched = self._matched[index]
            while matched and pattern[matched] != char:
                matched = borders[matched - 1]
            if pattern[matched] == char:
                matched += 1
            if matched == len(pattern):
                self.met = max(self.met, pattern, key=len)
                matched = borders[matched - 1]
            self._matched[index] = matched
        return bool(self.met)
