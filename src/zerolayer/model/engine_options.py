"""What a native engine is asked for: its sizes, and how it computes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The sizes of its memory, which is taken once, and choices that change its bits or its speed.

    It keeps ``prefixes`` shared prefixes of at most ``prefix_tokens`` tokens each (a multiple of 16), and one salt
    fills at most ``salt_share`` of them. ``stop_ids`` end a generation unless it asks to ignore them. ``notes`` are
    told with what the system allowed.
    """

    slots: int
    slot_tokens: int
    chunk_tokens: int
    threads: int
    prefixes: int = 0
    prefix_tokens: int = 0
    salt_share: float = 1.0
    kernels: str | None = None  # None: the best set of this processor
    exact: bool = False  # weights stay in the groups of the file, which ``EXACT`` types can; else int8 per output,
    fine: bool = True  # with more bits where inputs are large (native/kernels.hpp)
    bloom: bool = False  # tokens for the repetition penalty are in a Bloom filter instead of a set of bits
    cores: Sequence[int] = ()  # of the workers, all threads but the one that steps; none: they are not pinned
    stop_ids: Sequence[int] = ()
    notes: Sequence[str] = ()
