"""Ten thousand clients that leave in the middle: nothing of them is left behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parents[1] / "front"))
sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import soak
from echo_model import EchoEngine, Loaded

pytestmark = pytest.mark.judge


def test_ten_thousand_cancels_at_random_leave_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(soak, "ABORTS", 0.97)
    model = Loaded(EchoEngine(slots=16, slot_tokens=512, chunk_tokens=64, step_us=1_000))
    result = uvloop.run(soak.soak(model, tmp_path, 10_500, lambda _done, _of: None))
    assert result["as_before"], result["looks"]
    assert result["outcomes"]["finished"] < result["requests"] / 2  # a quick machine ends some before they are left
