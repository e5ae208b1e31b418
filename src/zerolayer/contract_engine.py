"""The section ``[engine]`` of the contract: who computes."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct


class Engine(Struct, frozen=True):
    """Who computes. ``threads`` = 0 takes what affinity and the cgroup's quota allow."""

    kind: Annotated[str, Meta(pattern=r"native|mock:step_us=[0-9]{1,8}")] = "native"
    # sets of cores, as in 0-3 or 0+8; each further one is a node of its own
    devices: tuple[Annotated[str, Meta(pattern=r"[0-9]{1,5}([-+][0-9]{1,5})*")], ...] = ()
    threads: Annotated[int, Meta(ge=0, le=1024)] = 0
    weights: Literal["auto", "exact", "int8"] = "auto"
    penalty: Literal["exact", "bloom"] = "exact"  # how a slot knows the tokens that repetition_penalty is for
    pin: bool = True  # worker threads keep to one core each, where the threads take all cores

    @property
    def devices_apart(self) -> bool:
        """Whether each core is named once, and ranges go upwards."""
        cores = [core for device in self.devices for core in cores_of(device)]
        return len(set(cores)) == len(cores) and all(cores_of(device) for device in self.devices)

    @property
    def mock_step_us(self) -> int | None:
        """Microseconds of one step of the mock engine; None for the native one."""
        return int(self.kind.rpartition("=")[2]) if self.kind.startswith("mock:") else None


def cores_of(device: str) -> tuple[int, ...]:
    """The cores that a set names: ``0-3+8`` is 0, 1, 2, 3 and 8. Empty where it names none, as ``3-0`` does."""
    cores: list[int] = []
    for part in device.split("+"):
        ends = [int(end) for end in part.split("-")]
        if len(ends) > 2 or ends[-1] < ends[0]:
            return ()
        cores += range(ends[0], ends[-1] + 1)
    return tuple(cores)
