"""GGUF files: what is read, and that nothing a file can say does harm."""

from __future__ import annotations

import os
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerolayer.errors import ModelFileError
from zerolayer.model.gguf import GgufFile, StringArray
from zerolayer.model.tensor_type import TensorType

Values = dict[str, tuple[int, bytes]]


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def array_of(kind: int, count: int, body: bytes) -> tuple[int, bytes]:
    return 9, struct.pack("<IQ", kind, count) + body


def tensor_entry(name: str, sizes: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)


def file_of(values: Values, tensors: list[bytes] = [], data: bytes = b"", version: int = 3, align: int = 32) -> bytes:  # noqa: B006
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    body = b"".join(text(key) + struct.pack("<I", kind) + raw for key, (kind, raw) in values.items())
    head += body + b"".join(tensors)
    return head + bytes(-len(head) % align) + data


SMALL = file_of(
    {
        "general.architecture": (8, text("llama")),
        "a.u8": (0, b"\x07"),
        "a.flag": (7, b"\x01"),
        "a.f32": (6, struct.pack("<f", 0.5)),
        "a.i64": (11, struct.pack("<q", -5)),
        "a.words": array_of(8, 3, text("one") + text("") + text("dré")),
        "a.numbers": array_of(5, 3, struct.pack("<3i", 1, -2, 3)),
        "a.nested": array_of(9, 2, struct.pack("<IQ", 0, 1) + b"\x01" + struct.pack("<IQ", 0, 2) + b"\x02\x03"),
    },
    [tensor_entry("w", (32, 2), 8, 0), tensor_entry("b", (4,), 0, 96)],
    bytes(range(68)) + bytes(28) + struct.pack("<4f", 1, 2, 3, 4),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "model.gguf"


def opened(path: Path, content: bytes) -> GgufFile:
    path.write_bytes(content)
    return GgufFile.open(path)


def refused(path: Path, content: bytes) -> str:
    with pytest.raises(ModelFileError) as caught:
        opened(path, content)
    return caught.value.message


def test_every_kind_of_value_is_read(path: Path) -> None:
    metadata = opened(path, SMALL).metadata
    words, numbers, nested = metadata["a.words"], metadata["a.numbers"], metadata["a.nested"]
    assert isinstance(words, StringArray)
    assert (metadata["a.u8"], metadata["a.flag"], metadata["a.f32"], metadata["a.i64"]) == (7, True, 0.5, -5)
    assert list(words) == ["one", "", "dré"]
    assert (words[2], list(words[:1]), words.raw[2]) == ("dré", ["one"], "dré".encode())
    assert list(numbers) == [1, -2, 3]  # type: ignore[call-overload]
    assert [list(inner) for inner in nested] == [[1], [2, 3]]  # type: ignore[attr-defined]


def test_a_tensor_has_row_major_shape_and_its_bytes(path: Path) -> None:
    model = opened(path, SMALL)
    info = model.tensors["w"]
    assert (info.shape, info.type, info.n_bytes) == ((2, 32), TensorType.Q8_0, 68)
    assert bytes(model.data("w")) == bytes(range(68))
    assert model.data("b").cast("f").tolist() == [1, 2, 3, 4]


def test_data_is_read_only(path: Path) -> None:
    assert opened(path, SMALL).data("w").readonly


def test_data_outlives_close(path: Path) -> None:
    with opened(path, SMALL) as model:
        data = model.data("b")
    model.close()
    assert data.cast("f").tolist() == [1, 2, 3, 4]


def test_an_unknown_tensor_is_a_clear_error(path: Path) -> None:
    with pytest.raises(ModelFileError, match="no tensor"):
        opened(path, SMALL).data("nothing")


def test_version_2_is_read(path: Path) -> None:
    assert opened(path, file_of({"a.u8": (0, b"\x01")}, version=2)).metadata == {"a.u8": 1}


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="No such file"):
        GgufFile.open(tmp_path / "absent.gguf")


def test_a_directory_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="directory"):
        GgufFile.open(tmp_path)


def test_a_pipe_that_nobody_writes_to_is_a_clear_error(path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(ModelFileError, match="no regular file"):
        GgufFile.open(path)


def test_a_device_is_a_clear_error() -> None:
    with pytest.raises(ModelFileError, match="no regular file"):
        GgufFile.open(Path("/dev/zero"))


U64 = (1 << 64) - 1
HOSTILE = {
    "empty": (b"", "empty"),
    "other letters": (b"GGML" + bytes(40), "not a GGUF file"),
    "big endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big endian"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "version 4": (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "version 4"),
    "too many keys": (b"GGUF" + struct.pack("<IQQ", 3, 0, U64), "metadata keys, the limit"),
    "too many tensors": (b"GGUF" + struct.pack("<IQQ", 3, U64, 0), "tensors, the limit"),
    "a string longer than the file": (file_of({"k": (8, struct.pack("<Q", 1000))}), "needs 1000 bytes"),
    "a string of 2**64 bytes": (file_of({"k": (8, struct.pack("<Q", U64))}), "the limit"),
    "an array of 2**64 numbers": (file_of({"k": array_of(0, U64, b"")}), "all arrays together"),
    "an array longer than the file": (file_of({"k": array_of(10, 1 << 20, b"")}), "needs 8388608 bytes"),
    "strings longer than the file": (file_of({"k": array_of(8, 1 << 20, b"")}), "are left"),
    "a string in an array longer than the file": (
        file_of({"k": array_of(8, 2, text("a") + struct.pack("<Q", U64))}),
        "runs over the end",
    ),
    "arrays in arrays without end": (file_of({"k": (9, struct.pack("<IQ", 9, 1) * 500)}), "nested more than"),
    "a million empty arrays": (file_of({"k": array_of(9, 1 << 20, struct.pack("<IQ", 0, 0) * 100)}), "all arrays"),
    "an unknown value type": (file_of({"k": (13, b"")}), "value type 13"),
    "an unknown array type": (file_of({"k": array_of(13, 0, b"")}), "array type 13"),
    "a truth value of 2": (file_of({"k": (7, b"\x02")}), "truth value"),
    "a key that is no text": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text(b"\xff\xfe") + bytes(16),
        "not valid UTF-8",
    ),
    "a split file": (file_of({"split.count": (2, struct.pack("<H", 3))}), "split into 3 files"),
    "an alignment of 3": (file_of({"general.alignment": (4, struct.pack("<I", 3))}), "power of two"),
    "an alignment of 0": (file_of({"general.alignment": (4, struct.pack("<I", 0))}), "power of two"),
    "an alignment of 2**31": (file_of({"general.alignment": (4, struct.pack("<I", 1 << 31))}), "power of two"),
    "a tensor without dimensions": (file_of({}, [tensor_entry("w", (), 0, 0)]), "0 dimensions"),
    "a tensor of 5 dimensions": (file_of({}, [tensor_entry("w", (1,) * 5, 0, 0)]), "5 dimensions"),
    "a tensor of size 0": (file_of({}, [tensor_entry("w", (0, 5), 0, 0)]), "rows of 0"),
    "a row that is no multiple of a block": (file_of({}, [tensor_entry("w", (33,), 8, 0)]), "blocks of 32"),
    "sizes whose product overflows": (file_of({}, [tensor_entry("w", (1 << 40, 1 << 40), 0, 0)]), "claims"),
    "an unknown tensor type": (file_of({}, [tensor_entry("w", (32,), 77, 0)]), "type number 77"),
    "a misaligned tensor": (file_of({}, [tensor_entry("w", (4,), 0, 7)], bytes(64)), "alignment"),
    "a tensor behind the end": (file_of({}, [tensor_entry("w", (4,), 0, 64)], bytes(64)), "cut short"),
    "a tensor at 2**63": (file_of({}, [tensor_entry("w", (4,), 0, 1 << 63)], bytes(64)), "claims"),
    "two tensors of a name": (file_of({}, [tensor_entry("w", (4,), 0, 0)] * 2, bytes(64)), "appears twice"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_one_clear_error(path: Path, case: str) -> None:
    content, expected = HOSTILE[case]
    assert expected in refused(path, content)


def test_a_key_that_appears_twice_is_one_clear_error(path: Path) -> None:
    pair = text("k") + struct.pack("<I", 0) + b"\x01"
    assert "appears twice" in refused(path, b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + pair * 2)


def test_a_name_from_the_file_cannot_steer_the_terminal(path: Path) -> None:
    entry = tensor_entry("\x1b[2J\u202e", (4,), 0, 64)
    assert refused(path, file_of({}, [entry], bytes(64))).isascii()


def test_every_truncation_is_one_clear_error(path: Path) -> None:
    assert all(refused(path, SMALL[:length]) for length in range(len(SMALL)))


def read_everything(model: GgufFile) -> int:
    """Touch all that a file gave; returns how much there was."""
    total = len(model.metadata)
    for name, info in model.tensors.items():
        assert len(model.data(name)) == info.n_bytes
        total += sum(model.data(name)[-1:])
    return total


@settings(max_examples=600, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8))
def test_changed_bytes_give_a_file_or_one_clear_error(path: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(SMALL)
    for at, value in changes:
        content[at] = value
    tracemalloc.start()
    with suppress(ModelFileError), opened(path, bytes(content)) as model:
        assert read_everything(model) >= 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 3))
def test_any_bytes_after_a_sound_head_give_a_file_or_one_clear_error(
    path: Path, rest: bytes, tensors: int, keys: int
) -> None:
    content = b"GGUF" + struct.pack("<IQQ", 3, tensors, keys) + rest
    with suppress(ModelFileError), opened(path, content) as model:
        assert read_everything(model) >= 0


def test_the_gguf_package_writes_what_is_read_here(path: Path) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("a name")
    writer.add_token_list(["a", "b c", "ä"])
    writer.add_array("some.floats", [0.5, 1.5])
    matrix = np.arange(64, dtype=np.float32).reshape(2, 32)
    writer.add_tensor("matrix", matrix)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1):
        writer.add_tensor(kind.name, gguf.quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = GgufFile.open(path)
    assert model.metadata["general.name"] == "a name"
    assert list(model.metadata["tokenizer.ggml.tokens"]) == ["a", "b c", "ä"]  # type: ignore[call-overload]
    assert list(model.metadata["some.floats"]) == [0.5, 1.5]  # type: ignore[call-overload]
    assert np.array_equal(np.frombuffer(model.data("matrix"), np.float32).reshape(2, 32), matrix)
    assert {name: info.shape for name, info in model.tensors.items()} == dict.fromkeys(model.tensors, (2, 32))


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    theirs = {kind.name: (int(kind), *gguf.GGML_QUANT_SIZES[kind]) for kind in gguf.GGMLQuantizationType}
    # The package counts Q8_1 with two 32-bit factors; ggml.h has two of 16 bits.
    ours = {kind.name: (kind.number, kind.block, kind.block_bytes) for kind in TensorType if kind != TensorType.Q8_1}
    assert {name: theirs[name] for name in ours} == ours


def test_the_bundled_file_reads_as_the_gguf_package_reads_it(
    bundled_path: Path, bundled_reader: gguf.GGUFReader
) -> None:
    model = GgufFile.open(bundled_path)
    theirs = {
        t.name: (tuple(map(int, reversed(t.shape))), t.tensor_type.name, t.data_offset) for t in bundled_reader.tensors
    }
    ours = {name: (info.shape, str(info.type), info.offset) for name, info in model.tensors.items()}
    assert ours == theirs
    for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.ggml.token_type"):
        assert list(model.metadata[key]) == bundled_reader.fields[key].contents()  # type: ignore[call-overload]
    scalars = {key: value for key, value in model.metadata.items() if isinstance(value, (int, float, str))}
    assert scalars == {key: bundled_reader.fields[key].contents() for key in scalars}
