"""Says how many judges a run left out, so that "all passed" is never mistaken for "all was run"."""

from __future__ import annotations

import os

# One thread for the numpy reference: on a busy machine OpenBLAS's threads wait for one another. Set before numpy is imported.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import pytest  # noqa: E402 - after the environment

_LEFT_OUT = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("judge") is not None:
            item.config.stash[_LEFT_OUT] = item.config.stash.get(_LEFT_OUT, 0) + 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"judges left out: {config.stash.get(_LEFT_OUT, 0)} (`make judges` runs them)")
