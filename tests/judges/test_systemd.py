"""systemd itself reads the unit that is given to people."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.judge

UNIT = Path(__file__).parent.parent.parent / "deploy" / "zerolayer.service"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze: apt-get install systemd")
def test_the_unit_is_without_fault(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/zerolayer/bin/zerolayer serve", "/bin/true"))
    found = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stderr.strip()) == (0, "")
