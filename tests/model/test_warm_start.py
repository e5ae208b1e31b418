"""Kept prefixes from one run to the next: only where asked for, only token ids, and never in the way of a start."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference.engines import Engines
from reference.schedule import alone
from reference.tiny_model import SMOL
from zerolayer.contract import Contract
from zerolayer.model.engine import Generation
from zerolayer.model.load import load_model
from zerolayer.model.native_engine import NativeEngine
from zerolayer.model.prefix_cache import Kept
from zerolayer.model.warm_start import place, read, write
from zerolayer.wire.schema import Sampling

PIECES = [b"a", b"bc"]
VOCABULARY = 300


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "prefixes.json"


def generation(first: int, tokens: int, salt: bytes = b"") -> Generation:
    sampling = Sampling(temperature=0.0, top_logprobs=2)
    return Generation([first + at for at in range(tokens)], sampling, 2, ignore_eos=True, salt=salt)


@given(st.lists(st.builds(Kept, st.binary(max_size=9), st.lists(st.integers(0, VOCABULARY - 1), max_size=40))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read(file: Path, prefixes: list[Kept]) -> None:
    write(file, prefixes)
    assert read(file, VOCABULARY) == prefixes


def test_the_file_is_its_owners_alone(file: Path) -> None:
    write(file, [Kept(b"", [1])])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]


def test_a_first_start_has_nothing_and_says_nothing(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert read(file, VOCABULARY) == []
    assert caplog.records == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"version":1,"prefixes":[{"salt":"","token_', "cannot be read"),
        (b"\x00\xff", "cannot be read"),
        (b'{"version":1}', "cannot be read"),
        (b'{"version":1,"prefixes":[{"salt":"%s","token_ids":[1]}]}' % (b"AAAA" * 30_000), "cannot be read"),
        (b'{"version":1,"prefixes":[{"salt":"","token_ids":["1"]}]}', "cannot be read"),
        (b'{"version":1,"prefixes":[{"salt":"","token_ids":[300]}]}', "outside the vocabulary"),
        (b'{"version":2,"prefixes":"of another kind"}', "newer version"),
    ],
)
def test_what_cannot_be_used_is_a_warning(file: Path, caplog: pytest.LogCaptureFixture, data: bytes, said: str) -> None:
    file.parent.mkdir()
    file.write_bytes(data)
    assert read(file, VOCABULARY) == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert said in caplog.text


def test_a_home_that_cannot_be_written_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    write(tmp_path / "cache" / "prefixes.json", [Kept(b"", [1])])
    assert "cannot be written" in caplog.text


def test_the_file_lies_in_the_users_cache() -> None:
    given_cache = place({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, "m", PIECES)
    assert given_cache.parent == Path("/c/zerolayer")
    assert place({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "m", PIECES).parent == Path("/h/.cache/zerolayer")


def test_another_model_has_another_file() -> None:
    places = {place({}, name, pieces) for name in ("m", "n") for pieces in (PIECES, [b"ab", b"c"], [b"a", b"bd"])}
    assert len(places) == 6


@pytest.fixture
def used(engines: Engines) -> NativeEngine:
    """After two prompts, one of them asked for twice."""
    engine = engines.open(SMOL, prefixes=3, prefix_tokens=64)
    for request in (generation(20, 40), generation(90, 40, b"tenant"), generation(90, 40, b"tenant")):
        alone(engine, request)
    return engine


def test_an_engine_tells_what_it_keeps_best_first(used: NativeEngine) -> None:
    assert used.kept_prefixes() == [
        Kept(b"tenant", [90 + at for at in range(32)]),
        Kept(b"", [20 + at for at in range(32)]),
    ]


def test_constants_are_not_among_what_is_kept(engines: Engines) -> None:
    engine = engines.open(SMOL, prefixes=3, prefix_tokens=64)
    engine.keep_constant(list(range(20, 60)))
    assert engine.kept_prefixes() == []


def test_a_prompt_that_an_earlier_run_kept_starts_behind_it_with_the_same_bits(
    engines: Engines, used: NativeEngine
) -> None:
    cold, warm = engines.open(SMOL), engines.open(SMOL, prefixes=3, prefix_tokens=64)
    for kept in used.kept_prefixes():
        warm.keep_prefix(kept)
    request = generation(90, 40, b"tenant")
    warm.open(0, request)
    assert warm.prefill_left(0) == 40 - 32
    warm.close(0)
    assert alone(warm, request) == alone(cold, request)


def test_another_salt_does_not_see_what_was_kept(engines: Engines, used: NativeEngine) -> None:
    warm = engines.open(SMOL, prefixes=3, prefix_tokens=64)
    for kept in used.kept_prefixes():
        warm.keep_prefix(kept)
    warm.open(0, generation(90, 40, b"another"))
    assert warm.prefill_left(0) == 40


def test_a_smaller_service_keeps_the_best(engines: Engines, used: NativeEngine) -> None:
    small = engines.open(SMOL, prefixes=1, prefix_tokens=64)
    for kept in used.kept_prefixes():
        small.keep_prefix(kept)
    assert small.kept_prefixes() == used.kept_prefixes()[:1]


def bundled(warm: bool) -> Contract:
    contract = Contract()
    context = msgspec.structs.replace(contract.context, slots=1, slot_tokens=128, prefixes=3, warm_start=warm)
    limits = msgspec.structs.replace(contract.limits, max_tokens=128, default_max_tokens=128)
    return msgspec.structs.replace(contract, context=context, limits=limits)


def test_a_service_remembers_from_run_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = []
    for _ in range(2):
        loaded = load_model(bundled(warm=True), lambda _: None)
        assert isinstance(loaded.engine, NativeEngine)
        kept.append(loaded.engine.kept_prefixes())
        alone(loaded.engine, generation(500, 40))
        loaded.remember()
        loaded.engine.shutdown()
    assert kept == [[], [Kept(b"", [500 + at for at in range(32)])]]


def test_a_service_that_was_not_asked_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    loaded = load_model(bundled(warm=False), lambda _: None)
    alone(loaded.engine, generation(500, 40))
    loaded.remember()
    loaded.engine.shutdown()
    assert list(tmp_path.iterdir()) == []
