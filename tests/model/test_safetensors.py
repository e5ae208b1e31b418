"""The safetensors reader: what the format's own writer writes, and strangers' files that must not hurt."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.tiny_folder import safetensors_bytes
from zerolayer.errors import ModelFileError
from zerolayer.model.safetensors import SafetensorsFile

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.arange(5, dtype=np.float16)
SOUND = safetensors_bytes({"a": ("F32", (2, 3), A.tobytes()), "b": ("F16", (5,), B.tobytes())})


def opened(folder: Path, raw: bytes) -> SafetensorsFile:
    (folder / "x.safetensors").write_bytes(raw)
    return SafetensorsFile.open(folder / "x.safetensors")


def with_header(header: object, data: bytes = bytes(34)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def test_tensors_are_read_where_they_lie(tmp_path: Path) -> None:
    file = opened(tmp_path, SOUND)
    assert {name: (t.dtype, t.shape) for name, t in file.tensors.items()} == {"a": ("F32", (2, 3)), "b": ("F16", (5,))}
    assert bytes(file.data("a")) == A.tobytes()
    assert bytes(file.data("b")) == B.tobytes()


def test_data_stays_readable_after_closing(tmp_path: Path) -> None:
    file = opened(tmp_path, SOUND)
    data = file.data("a")
    file.close()
    file.close()
    assert bytes(data) == A.tobytes()


def test_a_file_without_tensors_is_sound(tmp_path: Path) -> None:
    assert opened(tmp_path, with_header({}, b"")).tensors == {}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "too short for a length": (b"1234", "no header"),
    "no object": (struct.pack("<Q", 4) + b"[1] ", "no header"),
    "a header longer than the file": (struct.pack("<Q", 100) + b"{}", "claims 100 bytes"),
    "a header of 2^63 bytes": (struct.pack("<Q", 1 << 63) + b"{}", "claims 9223372036854775808"),
    "no JSON": (with_header(b"{nonsense"), "not valid JSON"),
    "no UTF-8": (with_header(b'{"\xff": 1}'), "not valid JSON"),
    "deeply nested": (with_header(b'{"a":' + b"[" * 200_000), "not valid JSON"),
    "a huge number": (with_header(b'{"a":' + b"9" * 10_000 + b"}"), "not valid JSON"),
    "a name twice": (with_header(b'{"a": {}, "a": {}}'), "appears twice"),
    "an entry that is no object": (with_header({"a": 1}), "no JSON object"),
    "an unknown type": (with_header({"a": entry("F4")}), "does not know"),
    "a type that is no text": (with_header({"a": entry(["F32"])}), "does not know"),
    "no shape": (with_header({"a": {"dtype": "F32", "data_offsets": [0, 24]}}), "no list of at most"),
    "a negative size": (with_header({"a": entry(shape=[-2, -3])}), "no list of at most"),
    "a broken size": (with_header({"a": entry(shape=[2.0, 3])}), "no list of at most"),
    "a truth value for a size": (with_header({"a": entry(shape=[True, 6])}), "no list of at most"),
    "too many dimensions": (with_header({"a": entry(shape=[1] * 9)}), "no list of at most"),
    "sizes whose product overflows": (with_header({"a": entry(shape=[1 << 40] * 8)}), "ask for others"),
    "more bytes than the shape": (with_header({"a": entry(offsets=(0, 28))}), "ask for others"),
    "an offset past the end": (with_header({"a": entry(offsets=(16, 40))}), "outside the 34 bytes"),
    "offsets the wrong way round": (with_header({"a": entry(offsets=(24, 0))}), "outside the 34 bytes"),
    "one offset": (with_header({"a": entry(offsets=(24,))}), "outside the 34 bytes"),
    "a hole at the beginning": (with_header({"a": entry(offsets=(10, 34))}), "leave a hole at byte"),
    "bytes of nobody": (with_header({"a": entry()}), "10 bytes at its end belong to no tensor"),
    "an overlap": (
        with_header({"a": entry(), "b": entry("F16", [13], (8, 34))}),
        "overlap",
    ),
    "a long name": (with_header({"a" * 300: entry()}), "has 300 characters"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_damaged_file_is_one_clear_error(case: str, tmp_path: Path) -> None:
    raw, expected = HOSTILE[case]
    with pytest.raises(ModelFileError) as caught:
        opened(tmp_path, raw)
    assert expected in caught.value.message
    assert len(caught.value.message) < 500


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=6), st.integers(0, len(SOUND)))
def test_any_damage_gives_a_sound_file_or_one_clear_error(
    tmp_path: Path, changes: list[tuple[int, int]], length: int
) -> None:
    raw = bytearray(SOUND)
    for at, value in changes:
        raw[at] = value
    try:
        file = opened(tmp_path, bytes(raw[:length]))
    except ModelFileError:
        return
    for name, stored in file.tensors.items():
        assert len(file.data(name)) == stored.n_bytes
    file.close()
