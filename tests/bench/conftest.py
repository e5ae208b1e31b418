"""The benchmarks are scripts: their folder joins the import path for these tests, and so does the scripted server's."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.extend([str(HERE.parents[1] / "bench"), str(HERE)])  # behind: a bench may be called as a folder of tests is
