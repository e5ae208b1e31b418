"""Types of command line arguments, as ``argparse`` takes them: a checked number of a text, or words of why not."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias, TypeVar

_Value = TypeVar("_Value")

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
"""What ``add_subparsers`` returns."""


def whole(least: int, most: int) -> Callable[[str], int]:
    """Whole numbers from ``least`` to ``most``, in decimal digits."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least:,} to {most:,}")
        return int(text)

    return read


def number(least: float, most: float) -> Callable[[str], float]:
    """Numbers from ``least`` to ``most``, which may have a fraction."""

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least:,.10g} to {most:,.10g}")
        return value

    return read


def listed(of: Callable[[str], _Value]) -> Callable[[str], tuple[_Value, ...]]:
    """Several of them, separated by commas."""
    return lambda text: tuple(of(part) for part in text.split(","))


port = whole(1, 65535)
