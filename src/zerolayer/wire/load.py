"""The header ``x-zl-load``, with which every reply says how loaded its node is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Load:
    """Free slots, milliseconds to the next free one, share of full speed, number of the peers' list."""

    free: int = 1
    next_ms: int = 0
    derate: float = 1.0
    epoch: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """``free=12;next_ms=0;derate=1.00;epoch=7``, in any order, with members that are not known; else None."""
        members = dict(part.strip().split("=", 1) for part in text.split(";") if "=" in part)
        try:
            free, next_ms = int(members["free"][:9]), int(members["next_ms"][:9])
            derate, epoch = float(members.get("derate", "1")[:9]), int(members.get("epoch", "0")[:18])
        except (KeyError, ValueError):
            return None
        if free < 0 or next_ms < 0 or not 0 < derate < 1000 or epoch < 0:
            return None
        return cls(free, next_ms, derate, epoch)
