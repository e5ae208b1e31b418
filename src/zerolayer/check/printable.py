"""Text that a service chose, on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """``text`` without what a terminal would obey rather than show; a sign stands in its place."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)
