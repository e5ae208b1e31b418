"""The section ``[engine]`` of the contract: who computes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Engine(Struct, frozen=True):
    """Who computes. ``threads`` = 0 takes what affinity and the cgroup's quota allow."""

    kind: Annotated[str, Meta(pattern=r"native|mock:step_us=[0-9]{1,8}")] = "native"
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    weights: Literal["auto", "exact", "int8"] = "auto"
    penalty: Literal["exact", "bloom"] = "exact"  # how a slot knows the tokens that repetition_penalty is for
    pin: bool = True  # worker threads keep to one core each, where the threads take all cores

    @property
    def mock_step_us(self) -> int | None:
        """Microseconds of one step of the mock engine; None for the native one."""
        return int(self.kind.rpartition("=")[2]) if self.kind.startswith("mock:") else None
