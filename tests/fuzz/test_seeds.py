"""Every kept input of the fuzzer passes its target; a find becomes a file here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz import targets
from fuzz.run import compiled_modules, found, read_tally
from fuzz.targets import TARGETS, seeds

CASES = [(name, path) for name in sorted(TARGETS) for path in seeds(name)]


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    """What targets keep between inputs goes while the interpreter is whole.

    pytest holds their functions to the very end, when nothing is cleared any more, and nanobind would tell of a leak.
    """
    yield
    kept = [each for each in vars(targets).values() if hasattr(each, "cache_clear")]
    assert kept
    for each in kept:
        each.cache_clear()


@pytest.mark.parametrize(("name", "path"), CASES, ids=[f"{name}-{path.name}" for name, path in CASES])
def test_a_seed_passes_its_target(name, path):
    assert TARGETS[name](path.read_bytes()) is None


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_what_the_fuzzer_found_passes_its_target(name):
    inputs = found(name)
    for data in inputs.values():
        TARGETS[name](data)
    assert inputs


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_every_target_has_had_a_million_inputs(name):
    assert read_tally()[name] >= 1_000_000


def test_every_target_has_seeds():
    assert {name for name, _ in CASES} == set(TARGETS)


def test_the_fuzzer_finds_all_that_is_compiled():
    """It loads these by name: whatever it misses, no target can be imported."""
    source = Path(__file__).parents[2] / "src"
    imported = {
        name
        for file in source.rglob("*.py")
        for name in re.findall(r"^from (zerolayer\.[a-z.]*_native) import", file.read_text(), re.MULTILINE)
    }
    assert imported
    assert imported <= set(compiled_modules())
