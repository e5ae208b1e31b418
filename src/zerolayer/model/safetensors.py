"""Safetensors files, read where they lie: memory-mapped, nothing copied but the header.

Format: https://huggingface.co/docs/safetensors, "Format".

    u64 length of the header, little endian
    header: {"name": {"dtype": "BF16", "shape": [n, k], "data_offsets": [begin, end]}, ...}, JSON; also "__metadata__"
    data: the tensors' bytes, back to back, without holes; offsets count from here

A model file comes from strangers, so the rules of ``gguf`` hold here too: every number is compared with what the file
can hold before anything is read by it, and whatever is wrong becomes one ``ModelFileError`` that says where.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Self

import msgspec

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import map_file, printable

MAX_HEADER_BYTES = 1 << 25  # a shard of the largest public models has some 200 KB
MAX_TENSORS = 65_536
MAX_NAME_CHARACTERS = 256
MAX_DIMENSIONS = 8
MAX_SIZE = 1 << 48  # of one dimension; products stay far from what a file can hold

_REMEDY = "Download the file again and compare its checksum."
_METADATA = "__metadata__"

# Bytes of one number, by the format's names.
DTYPE_BYTES: Mapping[str, int] = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4,
    "U64": 8, "I64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


class StoredTensor(msgspec.Struct, frozen=True):
    """One tensor of a file: ``dtype`` as the format names it, ``shape`` in row-major order, its place in the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


class SafetensorsFile:
    """An open file: where its tensors are, and their bytes. ``data`` views stay valid after ``close``."""

    def __init__(self, tensors: Mapping[str, StoredTensor], view: memoryview) -> None:
        self.tensors = tensors
        self._view = view

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map the file and read its header; ``ModelFileError`` if it cannot be read or is no sound safetensors file."""
        mapped = map_file(path)
        try:
            tensors = _read(mapped, path)
        except BaseException:
            mapped.close()
            raise
        return cls(tensors, memoryview(mapped))

    def data(self, name: str) -> memoryview:
        """The bytes of one tensor: read-only, no copy, aligned to nothing."""
        stored = self.tensors[name]
        return self._view[stored.offset : stored.offset + stored.n_bytes]

    def close(self) -> None:
        """Let go of the mapping. Idempotent."""
        self._view.release()


class _Header:
    """The header's entries as read, and what is wrong with them in words."""

    def __init__(self, path: Path, data_start: int, size: int) -> None:
        self.path = path
        self.data_start = data_start
        self.data_bytes = size - data_start

    def fail(self, what: str) -> ModelFileError:
        return ModelFileError(f"Model file {self.path.name} damaged: {what}. {_REMEDY}")

    def parse(self, raw: bytes) -> dict[str, object]:
        try:
            parsed = json.loads(raw, object_pairs_hook=self._unique)
        except (ValueError, RecursionError):  # no UTF-8, no JSON, or nested thousands deep
            raise self.fail("its header is not valid JSON") from None
        if not isinstance(parsed, dict):
            raise self.fail("its header is no JSON object")
        return parsed

    def _unique(self, pairs: list[tuple[str, object]]) -> dict[str, object]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            raise self.fail("a name appears twice in its header")
        return unique

    def tensor(self, name: str, entry: object) -> StoredTensor:
        shown = printable(name)
        if len(name) > MAX_NAME_CHARACTERS:
            raise self.fail(f"a tensor's name has {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}")
        if not isinstance(entry, dict):
            raise self.fail(f"the entry of tensor {shown} is no JSON object")
        dtype, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
            raise ModelFileError(
                f"Tensor {shown} of {self.path.name} has a number type that this build does not know. "
                "Use a BF16, F16 or F32 copy of the model, or a newer zerolayer."
            )
        sizes = _naturals(shape, MAX_DIMENSIONS)
        if sizes is None:
            raise self.fail(f"the shape of tensor {shown} is no list of at most {MAX_DIMENSIONS} sizes")
        place = _naturals(offsets, 2)
        if place is None or len(place) != 2 or not place[0] <= place[1] <= self.data_bytes:
            raise self.fail(f"tensor {shown} lies outside the {self.data_bytes} bytes of data")
        if prod(sizes) * DTYPE_BYTES[dtype] != place[1] - place[0]:
            raise self.fail(f"tensor {shown} has {place[1] - place[0]} bytes, and its shape and type ask for others")
        return StoredTensor(dtype, sizes, self.data_start + place[0], place[1] - place[0])

    def check_coverage(self, tensors: Mapping[str, StoredTensor]) -> None:
        """The format wants every byte of the data to belong to exactly one tensor."""
        at = self.data_start
        for stored in sorted(tensors.values(), key=lambda stored: (stored.offset, stored.n_bytes)):
            if stored.offset != at:
                raise self.fail(f"its tensors overlap or leave a hole at byte {min(at, stored.offset)}")
            at += stored.n_bytes
        if at != self.data_start + self.data_bytes:
            raise self.fail(f"{self.data_start + self.data_bytes - at} bytes at its end belong to no tensor")


def _naturals(value: object, limit: int) -> tuple[int, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str) or len(value) > limit:
        return None
    fits = all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= MAX_SIZE for item in value)
    return tuple(value) if fits else None


def _read(mapped: mmap.mmap, path: Path) -> dict[str, StoredTensor]:
    size = len(mapped)
    length = struct.unpack_from("<Q", mapped)[0] if size >= 8 else 0
    if size < 10 or mapped[8:9] != b"{":
        raise ModelFileError(f"{path.name} is not a safetensors file (it has no header). {_REMEDY}")
    if length > MAX_HEADER_BYTES or 8 + length > size:
        raise ModelFileError(
            f"Model file {path.name} damaged: its header claims {length} bytes; the file has {size}, and the limit is "
            f"{MAX_HEADER_BYTES}. {_REMEDY}"
        )
    header = _Header(path, 8 + length, size)
    entries = header.parse(mapped[8 : 8 + length])
    entries.pop(_METADATA, None)
    if len(entries) > MAX_TENSORS:
        raise header.fail(f"it lists {len(entries)} tensors, the limit is {MAX_TENSORS}")
    tensors = {name: header.tensor(name, entry) for name, entry in entries.items()}
    header.check_coverage(tensors)
    return tensors
