"""After many requests and aborts a server holds what it held before; ``bench/soak.py`` does the same 100,000 times."""

from __future__ import annotations

import sys
from pathlib import Path

import uvloop
from echo_model import EchoEngine, Loaded

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from soak import GROWS, soak


def test_requests_and_aborts_leave_nothing_behind(tmp_path):
    model = Loaded(EchoEngine(slots=16, slot_tokens=512, chunk_tokens=64, step_us=100))
    result = uvloop.run(soak(model, tmp_path, 500, lambda _done, _of: None))
    looks = {name: look for name, look in result["looks"].items() if name not in GROWS}
    assert all(before == half == after for before, half, after in looks.values()), looks
    assert looks["free slots"] == (16, 16, 16)
    assert looks["held tokens"] == (0, 0, 0)
    assert result["outcomes"]["aborted"] > 60
    assert result["outcomes"]["finished"] > 300
