"""GGUF model files, read where they lie: memory-mapped, nothing copied but the metadata.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian.

    header   "GGUF", u32 version, u64 tensor count, u64 metadata count
    metadata (string key, u32 type, value) ...
    tensors  (string name, u32 dimensions, u64 size of each, u32 type, u64 offset into the data) ...
    padding  to the alignment, then the tensors' data

A model file comes from strangers. Two rules hold here: every number of the file is compared with what the file can
hold before anything is allocated or read by it, and whatever is wrong becomes one ``ModelFileError`` that says where.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self, overload

import msgspec

from zerolayer.errors import ModelFileError
from zerolayer.model.tensor_type import TYPE_OF_NUMBER
from zerolayer.model.weights import TensorInfo
from zerolayer.text._native import strings

MAX_KEYS = 65_536
MAX_TENSORS = 65_536
MAX_KEY_BYTES = 65_535  # the specification's limit
MAX_NAME_BYTES = 256  # the specification says 64; some writers exceed it
MAX_ELEMENTS = 1 << 24  # of all arrays together; the largest vocabularies have 2**18 tokens
MAX_STRING_BYTES = 1 << 24  # of one metadata value, the chat template being the longest
MAX_STRINGS_BYTES = 1 << 28  # of one array of strings
MAX_DIMENSIONS = 4
MAX_NESTING = 4
MAX_ALIGNMENT = 1 << 20

_REMEDY = "Download the file again and compare its checksum."


class StringArray(Sequence[str]):
    """An array of strings as the file holds them; ``raw`` are their bytes, decoded one by one when asked for.

    Vocabularies hold 10**5 strings and are needed as bytes, so decoding all of them at open would be wasted. A string
    that is not valid UTF-8 decodes with U+FFFD in it.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: list[bytes]) -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> StringArray: ...
    def __getitem__(self, index: int | slice) -> str | StringArray:
        if isinstance(index, slice):
            return StringArray(self.raw[index])
        return self.raw[index].decode("utf-8", "replace")

    def __iter__(self) -> Iterator[str]:
        return (item.decode("utf-8", "replace") for item in self.raw)


_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_STRING, _ARRAY, _BOOL = 8, 9, 7
_ARRAY_WEIGHT = 64  # an array inside an array costs memory like so many numbers
# Value types of fixed size: their struct code and their size in bytes. ``array`` knows the same codes.
_FIXED: dict[int, tuple[str, int]] = {
    0: ("B", 1), 1: ("b", 1), 2: ("H", 2), 3: ("h", 2), 4: ("I", 4), 5: ("i", 4),
    6: ("f", 4), 7: ("B", 1), 10: ("Q", 8), 11: ("q", 8), 12: ("d", 8),
}  # fmt: skip
_LITTLE_ENDIAN_HOST = struct.pack("=H", 1) == b"\x01\x00"


def printable(text: str, limit: int = 80) -> str:
    """``text`` of a stranger's file, fit for a terminal: ASCII only, escapes visible, cut to ``limit`` characters."""
    shown = ascii(text[:limit])
    return shown if len(text) <= limit else shown + "..."


class _Cursor:
    """Reads forward through the mapped file; every read is checked against its end."""

    def __init__(self, data: mmap.mmap, size: int) -> None:
        self.data = data
        self.end = size
        self.at = 0
        self.elements_left = MAX_ELEMENTS

    def fail(self, what: str, at: int | None = None) -> ModelFileError:
        return ModelFileError(
            f"Model file damaged at byte {self.at if at is None else at} of {self.end}: {what}. {_REMEDY}"
        )

    def take(self, n_bytes: int, what: str) -> int:
        """Move over ``n_bytes`` and return where they begin."""
        start = self.at
        if n_bytes > self.end - start:
            raise self.fail(f"{what} needs {n_bytes} bytes, and {self.end - start} are left")
        self.at = start + n_bytes
        return start

    def u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.data, self.take(8, what))[0]
        return value

    def string(self, what: str, limit: int) -> bytes:
        start = self.at
        length = self.u64(f"the length of {what}")
        if length > limit:
            raise self.fail(f"{what} claims {length} bytes, the limit is {limit}", start)
        begin = self.take(length, what)
        return self.data[begin : begin + length]

    def text(self, what: str, limit: int) -> str:
        start = self.at
        raw = self.string(what, limit)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise self.fail(f"{what} is not valid UTF-8", start) from None

    def strings(self, count: int) -> StringArray:
        """``count`` strings; vocabularies have 10**5 of them."""
        end = min(self.end, self.at + MAX_STRINGS_BYTES)
        items, self.at = strings(self.data, self.at, end, count)
        if len(items) < count:
            what = "an array of strings" if self.at > end - 8 else "a string"
            raise self.fail(f"{what} runs over the end of the file or of {MAX_STRINGS_BYTES} bytes")
        return StringArray(items)


def _array(cursor: _Cursor, depth: int) -> object:
    start = cursor.at
    kind = cursor.u32("an array's type")
    count = cursor.u64("an array's length")
    weight = _ARRAY_WEIGHT if kind == _ARRAY else 1
    if count * weight > cursor.elements_left:
        raise cursor.fail(f"an array claims {count} elements; all arrays together may have {MAX_ELEMENTS}", start)
    cursor.elements_left -= count * weight
    if kind in _FIXED:
        code, size = _FIXED[kind]
        begin = cursor.take(count * size, "an array")
        values = array(code)
        values.frombytes(cursor.data[begin : cursor.at])
        if not _LITTLE_ENDIAN_HOST:
            values.byteswap()
        return values
    # The smallest string is 8 bytes, the smallest array 12: a count that cannot fit is refused before the loop.
    if kind in (_STRING, _ARRAY) and count * (8 if kind == _STRING else 12) > cursor.end - cursor.at:
        raise cursor.fail(f"an array claims {count} elements, and {cursor.end - cursor.at} bytes are left", start)
    if kind == _STRING:
        return cursor.strings(count)
    if kind == _ARRAY:
        if depth >= MAX_NESTING:
            raise cursor.fail(f"arrays are nested more than {MAX_NESTING} deep", start)
        return [_array(cursor, depth + 1) for _ in range(count)]
    raise cursor.fail(f"array type {kind} does not exist", start)


def _value(cursor: _Cursor) -> object:
    start = cursor.at
    kind = cursor.u32("a value's type")
    if kind in _FIXED:
        code, size = _FIXED[kind]
        value: int | float = struct.unpack_from("<" + code, cursor.data, cursor.take(size, "a value"))[0]
        if kind == _BOOL and value not in (0, 1):
            raise cursor.fail(f"a truth value is {value}, not 0 or 1", start)
        return bool(value) if kind == _BOOL else value
    if kind == _STRING:
        return cursor.text("a string", MAX_STRING_BYTES)
    if kind == _ARRAY:
        return _array(cursor, 1)
    raise cursor.fail(f"value type {kind} does not exist", start)


def _header(cursor: _Cursor, path: Path) -> tuple[int, int]:
    """Number of tensors and of metadata keys."""
    if cursor.end < 24 or cursor.data[:4] != b"GGUF":
        raise ModelFileError(
            f"{path} is not a GGUF file (it does not begin with the letters GGUF). Give --model a .gguf file."
        )
    cursor.at = 4
    version = cursor.u32("the version")
    if version not in (2, 3):
        if version & 0xFFFF == 0:
            raise ModelFileError(
                "The GGUF file is big endian; this build reads little endian. Convert it with gguf-convert-endian."
            )
        raise ModelFileError(
            f"GGUF version {version} is not supported; this build reads 2 and 3. Convert the model again."
        )
    tensors, keys = cursor.u64("the number of tensors"), cursor.u64("the number of keys")
    for count, limit, noun in ((tensors, MAX_TENSORS, "tensors"), (keys, MAX_KEYS, "metadata keys")):
        if count > limit:
            raise cursor.fail(f"the file claims {count} {noun}, the limit is {limit}", 8)
    return tensors, keys


def _metadata(cursor: _Cursor, count: int) -> dict[str, object]:
    metadata: dict[str, object] = {}
    for _ in range(count):
        start = cursor.at
        key = cursor.text("a metadata key", MAX_KEY_BYTES)
        if key in metadata:
            raise cursor.fail(f"the metadata key {printable(key)} appears twice", start)
        metadata[key] = _value(cursor)
    return metadata


def _alignment(metadata: Mapping[str, object]) -> int:
    value = metadata.get("general.alignment", 32)
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise ModelFileError(f"general.alignment must be a power of two up to {MAX_ALIGNMENT}. {_REMEDY}")
    return value


def _tensor(cursor: _Cursor, alignment: int) -> TensorInfo:
    """One entry of the tensor list; ``offset`` still counts from the start of the data."""
    start = cursor.at
    name = cursor.text("a tensor's name", MAX_NAME_BYTES)
    dimensions = cursor.u32("a tensor's number of dimensions")
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise cursor.fail(f"a tensor has {dimensions} dimensions, the limit is {MAX_DIMENSIONS}", start)
    sizes = [cursor.u64("a tensor's size") for _ in range(dimensions)]
    number = cursor.u32("a tensor's type")
    offset = cursor.u64("a tensor's offset")
    kind = TYPE_OF_NUMBER.get(number)
    if kind is None:
        raise ModelFileError(
            f"Tensor type number {number} is unknown to this build. "
            "Use another quantisation of the model, or a newer zerolayer."
        )
    if not all(sizes) or sizes[0] % kind.block:
        raise cursor.fail(f"a {kind} tensor has rows of {sizes[0]} numbers; they come in blocks of {kind.block}", start)
    if offset % alignment:
        raise cursor.fail(f"a tensor begins at {offset}, which is no multiple of the alignment {alignment}", start)
    n_bytes = prod(sizes) // kind.block * kind.block_bytes
    if n_bytes > cursor.end or offset > cursor.end:
        raise cursor.fail(f"a tensor claims {n_bytes} bytes from {offset} on", start)
    return TensorInfo(name, tuple(reversed(sizes)), kind, offset, n_bytes)


def _tensors(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    listed = [_tensor(cursor, alignment) for _ in range(count)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, TensorInfo] = {}
    for info in listed:
        begin = data_start + info.offset
        if begin + info.n_bytes > cursor.end:
            raise ModelFileError(
                f"The model file is cut short: tensor {printable(info.name)} needs bytes {begin} to "
                f"{begin + info.n_bytes}, and the file has {cursor.end}. {_REMEDY}"
            )
        if info.name in tensors:
            raise cursor.fail(f"the tensor {printable(info.name)} appears twice")
        tensors[info.name] = msgspec.structs.replace(info, offset=begin)
    return tensors


class GgufFile:
    """An open model file: its metadata, where its tensors are, and their bytes.

    Metadata values are ``int``, ``float``, ``bool``, ``str``, ``StringArray``, ``array.array`` (numbers; truth values
    as 0 and 1) or lists of those. ``data`` views stay valid after ``close``; the mapping goes with the last of them.
    """

    def __init__(self, metadata: Mapping[str, object], tensors: Mapping[str, TensorInfo], view: memoryview) -> None:
        self.metadata = metadata
        self.tensors = tensors
        self._view = view

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Map the file and read its header; ``ModelFileError`` if it cannot be read or is not a sound GGUF file."""
        path = Path(path)
        mapped = map_file(path)
        try:
            metadata, tensors = _read(mapped, path)
        except BaseException:
            mapped.close()
            raise
        return cls(metadata, tensors, memoryview(mapped))

    def data(self, name: str) -> memoryview:
        """The ``n_bytes`` bytes of one tensor: read-only, no copy. ``ModelFileError`` if there is no such tensor."""
        info = self.tensors.get(name)
        if info is None:
            raise ModelFileError(
                f"The model file has no tensor {printable(name)}. Use a file of a supported architecture."
            )
        return self._view[info.offset : info.offset + info.n_bytes]

    def close(self) -> None:
        """Let go of the mapping. Idempotent."""
        self._view.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_to_read(path: Path) -> BinaryIO:
    """Without waiting for somebody who writes, as a pipe would. Raises ``OSError``."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def map_file(path: Path) -> mmap.mmap:
    """The whole file, read-only; ``ModelFileError`` if it is empty or cannot be read."""
    try:
        with open_to_read(path) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ModelFileError(f"{path} is no regular file, so it cannot be mapped. Give --model a file.")
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFileError(f"{path} is empty. {_REMEDY}")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it cannot be mapped"
        raise ModelFileError(f"Cannot read the model file {path}: {reason}. Check the path given to --model.") from None


def _read(mapped: mmap.mmap, path: Path) -> tuple[dict[str, object], dict[str, TensorInfo]]:
    cursor = _Cursor(mapped, len(mapped))
    tensor_count, key_count = _header(cursor, path)
    metadata = _metadata(cursor, key_count)
    parts = metadata.get("split.count", 1)
    if isinstance(parts, int) and parts > 1:
        raise ModelFileError(
            f"The model is split into {parts} files. Join them with llama-gguf-split --merge and give the result."
        )
    return metadata, _tensors(cursor, tensor_count, _alignment(metadata))
