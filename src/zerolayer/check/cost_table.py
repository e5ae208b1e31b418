"""What a kind of node costs: step times and a price, from a TOML file or from a server that has measured itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import msgspec

from zerolayer.check.errors import InputFileError, TargetError
from zerolayer.check.files import read_bytes
from zerolayer.check.scrape import Scrape
from zerolayer.errors import UsageError


class Cost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A node's cost table, measured or given: step times at full occupancy, and the price.

    ``row_ms`` is what each further slot adds to a step, for plans with other numbers of slots.
    """

    name: str
    slots: int
    decode_ms: float  # a step in which every slot brings one token
    mixed_ms: float  # the same step with a chunk of a prompt
    chunk_tokens: int
    slot_tokens: int
    price_per_hour: float = 0.0
    row_ms: float = 0.0

    def with_slots(self, slots: int) -> Cost:
        """The same node with another number of slots. Raises ``UsageError`` where its steps would take no time."""
        more = (slots - self.slots) * self.row_ms
        if self.decode_ms + more <= 0:
            raise UsageError(f"{self.name} with {slots} slots would have steps of no time: its row_ms is too large.")
        return msgspec.structs.replace(
            self, slots=slots, decode_ms=self.decode_ms + more, mixed_ms=self.mixed_ms + more
        )


def read_cost(path: Path) -> Cost:
    """A cost table from a TOML file. Raises ``InputFileError``."""
    try:
        cost = msgspec.toml.decode(read_bytes(path), type=Cost)
    except (msgspec.DecodeError, UnicodeDecodeError):
        fields = ", ".join(Cost.__struct_fields__)
        raise InputFileError(f"{path.name} is no cost table. It is TOML with {fields}.") from None
    positive = (cost.slots, cost.decode_ms, cost.mixed_ms, cost.chunk_tokens, cost.slot_tokens)
    if not all(0 < value < math.inf for value in positive) or not (
        0 <= cost.price_per_hour < math.inf and 0 <= cost.row_ms < math.inf
    ):
        raise InputFileError(f"{path.name} holds a value that is not above 0. Only price_per_hour and row_ms may be 0.")
    return cost


def measured(scrape: Scrape, name: str) -> Cost:
    """The table of a running server, of what it says at ``/metrics``; without a price.

    Raises ``TargetError`` where it says nothing of its steps.
    """
    shape = [scrape.label("vllm:cache_config_info", label) or "0" for label in ("num_gpu_blocks", "block_size")]
    slots, slot_tokens = (int(each) if each.isascii() and each.isdigit() else 0 for each in shape)
    one, decode, mixed = (1000 * scrape.total("zerolayer:step_seconds", kind=k) for k in ("one", "decode", "mixed"))
    chunk_tokens = int(scrape.total("zerolayer:chunk_tokens"))
    if min(slots, slot_tokens, chunk_tokens) <= 0 or not 0 < decode <= mixed < math.inf:
        raise TargetError("the page says nothing of steps; give the admin address of a zerolayer server that is ready")
    return Cost(
        name=name,
        slots=slots,
        decode_ms=decode,
        mixed_ms=mixed,
        chunk_tokens=chunk_tokens,
        slot_tokens=slot_tokens,
        row_ms=max(0.0, decode - one) / (slots - 1) if slots > 1 and one > 0 else 0.0,
    )


def to_toml(cost: Cost) -> str:
    """The table as ``read_cost`` takes it, times to the microsecond."""
    lines = [f"name = {json.dumps(cost.name)}"]
    for field in Cost.__struct_fields__[1:]:
        value = getattr(cost, field)
        lines.append(f"{field} = {round(value, 3) if isinstance(value, float) else value}")
    return "\n".join(lines) + "\n"
