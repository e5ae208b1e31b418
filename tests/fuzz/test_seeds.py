"""Every kept input of the fuzzer passes its target; a find becomes a file here."""

from __future__ import annotations

import pytest

from fuzz.targets import TARGETS, seeds

CASES = [(name, path) for name in sorted(TARGETS) for path in seeds(name)]


@pytest.mark.parametrize(("name", "path"), CASES, ids=[f"{name}-{path.name}" for name, path in CASES])
def test_a_seed_passes_its_target(name, path):
    assert TARGETS[name](path.read_bytes()) is None


def test_every_target_has_seeds():
    assert {name for name, _ in CASES} == set(TARGETS)
