"""What a component's Python objects take: walked on scrape, with a bound on the walk whatever has piled up.

Of a container with many members a few are looked at, and count for all. What lies outside of Python's objects (the
kernel's socket buffers, tables of native libraries) is seen by nobody but the operating system.
"""

from __future__ import annotations

import gc
import sys
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from zerolayer.observe.exposition import family, single

_LOOKED_AT: Final = 12  # of a container's members
_MOST: Final = 1_000  # objects of one component that changes
_MOST_ONCE: Final = 20_000
_DEEPEST: Final = 60  # steps from a root
_CONTAINERS: Final = (dict, OrderedDict, list, tuple, set, frozenset, deque)
_PLAIN: Final = frozenset({*_CONTAINERS, str, bytes, bytearray, int, float, complex, memoryview})


class Component(msgspec.Struct, frozen=True):
    """``roots`` are where a component's data begins; objects of the modules below ``rooms`` belong to it.

    ``lasting``: it does not change after the start.
    """

    name: str
    roots: tuple[object, ...]
    rooms: tuple[str, ...]
    lasting: bool = False


class GlueMemory:
    """Measures ``components``: those that last now, the others when asked. What several reach counts for the first."""

    def __init__(self, components: Iterable[Component]) -> None:
        self._components = tuple(components)
        seen: set[int] = set()
        lasting = [each for each in self._components if each.lasting]
        self._lasting = {each.name: _Walk(each.rooms, seen, _MOST_ONCE).bytes_of(each.roots) for each in lasting}

    def measure(self) -> dict[str, int]:
        """Bytes by component, in the order given."""
        seen: set[int] = set()
        return {
            each.name: self._lasting[each.name] if each.lasting else _Walk(each.rooms, seen, _MOST).bytes_of(each.roots)
            for each in self._components
        }


def memory_lines(labels: str, held: Mapping[str, int], engine: int, resident: int) -> Iterator[str]:
    """The samples of ``held``; what is neither that nor the engine's is the component ``process``."""
    rest = max(0, resident - engine - sum(held.values()))
    name, about = "zerolayer:glue_memory_bytes", "Memory that is not the engine's, by who holds it."
    yield from family(name, "gauge", about, labels, "component", {**held, "process": rest}.items())
    yield from single("zerolayer:engine_memory_bytes", "gauge", "Weights, slots and scratch.", labels, engine)


class _Walk:
    """One component's."""

    def __init__(self, rooms: tuple[str, ...], seen: set[int], most: int) -> None:
        self._rooms = rooms
        self._seen = seen
        self._left = most

    def bytes_of(self, roots: Iterable[object]) -> int:
        """All that can be reached from ``roots`` inside the component, the roots included."""
        return round(sum(self._size(root, 0) for root in roots if root is not None))

    def _size(self, found: object, depth: int) -> float:
        if id(found) in self._seen or not self._left or depth > _DEEPEST:
            return 0.0
        self._seen.add(id(found))
        self._left -= 1
        own = sys.getsizeof(found)
        if not isinstance(found, _CONTAINERS) or len(found) <= _LOOKED_AT:
            return own + self._of(gc.get_referents(found), depth)
        # The first member pays for what all share, so that only what each has of its own is multiplied.
        first, *others = [self._of(member, depth) for member in _some(found)] or [0.0]
        share = sum(others) / max(1, len(others))
        return own + first + max(0, len(found) - 1) * share  # another thread may have emptied it meanwhile

    def _of(self, members: Iterable[object], depth: int) -> float:
        return sum(self._size(member, depth + 1) for member in members if self._belongs(member))

    def _belongs(self, member: object) -> bool:
        kind = type(member)
        return kind in _PLAIN or kind.__module__.startswith(self._rooms)


def _some(found: Iterable[object]) -> list[tuple[object, ...]]:
    """A few members; of a mapping, keys with their values.

    Taken in one call that no other thread interrupts: some of what is walked is written by others meanwhile.
    """
    if isinstance(found, dict):
        return list(islice(found.items(), _LOOKED_AT))
    return list(zip(islice(found, _LOOKED_AT), strict=True))
