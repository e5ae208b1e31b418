"""Names on the hub: found in the local cache, or one error that says what to do. No test reaches the network."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerolayer.errors import StartupError
from zerolayer.model.hub import FILES, snapshot


def lines() -> list[str]:
    return []


def hub_that(monkeypatch: pytest.MonkeyPatch, outcome: Path | Exception) -> list[tuple[str, Any]]:
    """Puts a stand-in for ``huggingface_hub`` in place, and records what it is asked for."""
    asked: list[tuple[str, Any]] = []

    def snapshot_download(name: str, *, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        if isinstance(outcome, Exception):
            raise outcome
        return str(outcome)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=snapshot_download))
    return asked


def error(name: str, base: type[Exception] = Exception) -> Exception:
    return type(name, (base,), {})("secret text of another library")


def test_only_the_files_that_are_read_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = hub_that(monkeypatch, tmp_path)
    assert snapshot("Qwen/Qwen3-0.6B", lines().append) == tmp_path
    assert asked == [("Qwen/Qwen3-0.6B", list(FILES))]


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(StartupError, match=r"pip install 'zerolayer\[hf\]'"):
        snapshot("a/b", lines().append)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (error("RepositoryNotFoundError"), "no public model a/b"),
        (error("GatedRepoError"), "is gated"),
        (error("LocalEntryNotFoundError", FileNotFoundError), "cannot be reached"),
        (error("ConnectError"), "cannot be reached"),
        (OSError(28, "No space left"), "could not be stored"),
    ],
)
def test_every_failure_says_what_to_do(monkeypatch: pytest.MonkeyPatch, raised: Exception, expected: str) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    hub_that(monkeypatch, raised)
    with pytest.raises(StartupError) as caught:
        snapshot("a/b", lines().append)
    assert expected in caught.value.message
    assert "secret" not in caught.value.message


def test_the_real_package_offline_says_how_to_bring_the_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(StartupError, match=r"HF_HUB_OFFLINE forbids.*hf download a/b --local-dir b"):
        snapshot("a/b", lines().append)


def test_the_real_package_finds_a_cached_model_offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    stored = tmp_path / "models--a--b"
    (stored / "refs").mkdir(parents=True)
    (stored / "refs" / "main").write_text("0" * 40)
    (stored / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (stored / "snapshots" / ("0" * 40) / "config.json").write_text("{}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    assert (snapshot("a/b", lines().append) / "config.json").read_text() == "{}"
