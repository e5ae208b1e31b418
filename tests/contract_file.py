"""Contract files for tests, and what is said where one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolayer.contract import load
from zerolayer.errors import ContractError


def write(folder: Path, text: str) -> Path:
    path = folder / "contract.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ContractError) as caught:
        load(write(folder, text), {}, {})
    return caught.value.message
