"""Nodes that the operator wrote down."""

from __future__ import annotations

from typing import Self
from urllib.parse import SplitResult

from zerolayer.cluster.directory import LATEST_S, Found


class StaticList:
    """Always the same address; several make a list."""

    def __init__(self, address: str) -> None:
        self.name = address

    @classmethod
    def of(cls, parts: SplitResult) -> Self:
        """``http://host:port`` or ``https://host:port``. Raises ``ValueError``."""
        if not parts.hostname or parts.path.strip("/") or parts.query or parts.username is not None:
            raise ValueError
        return cls(f"{parts.scheme}://{parts.netloc}")

    def look(self) -> Found:
        """The address."""
        return Found((self.name,), LATEST_S)
