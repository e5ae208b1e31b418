"""Environments for other people's clients, made once and kept in ``.judges`` beside the sources.

As a program it makes one by hand: ``python tests/judges/client_environments.py requirements-lm-eval.txt``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent / "clients"
KEPT = Path(__file__).parents[2] / ".judges"


def python_with(requirements: str, *, large: bool = False) -> Path:
    """A Python that has what ``requirements`` (a file of ``clients``) names; a large one is made by hand only."""
    wanted = HERE / requirements
    folder = KEPT / f"python-{_digest(wanted)}"
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        if large:
            pytest.skip(f"it is large; install it with: python tests/judges/client_environments.py {requirements}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        # Most of what comes with them is never imported, and so need not be compiled.
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
        install = [*pip, "install", "-q", "--no-compile", "-r", wanted]
        if subprocess.run(install, check=False, capture_output=True).returncode != 0:
            pytest.skip(f"its packages could not be installed; try: pip install -r {wanted}")
        (folder / "complete").touch()
    return python


def node_folder() -> Path:
    """A folder whose ``node_modules`` has what ``clients/package.json`` names."""
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is missing; install it with: apt-get install nodejs npm")
    wanted = HERE / "package.json"
    folder = KEPT / f"node-{_digest(wanted)}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(wanted, folder)
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
        if subprocess.run(install, cwd=folder, check=False, capture_output=True).returncode != 0:
            pytest.skip(f"npm could not install the packages of {wanted}")
        (folder / "complete").touch()
    return folder


def said_by_python(script: str, url: str, scratch: Path, ask: str = "") -> Any:
    """What the script of ``clients`` printed about the server at ``url``: of what it can ask, what ``ask`` names."""
    environment = {"ZEROLAYER_TEST_URL": url, "ZEROLAYER_TEST_ASK": ask, "LLM_USER_PATH": str(scratch)}
    return _said([python_with("requirements.txt"), HERE / script], environment, scratch)


def said_by_node(script: str, url: str, ask: str = "") -> Any:
    """The same of a script for Node, which finds packages beside itself only."""
    folder = node_folder()
    shutil.copy(HERE / script, folder)
    return _said(["node", script], {"ZEROLAYER_TEST_URL": url, "ZEROLAYER_TEST_ASK": ask}, folder)


def _said(command: list[Any], environment: dict[str, str], folder: Path) -> Any:
    run = subprocess.run(
        command, env=os.environ | environment, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def _digest(wanted: Path) -> str:
    return hashlib.sha256(wanted.read_bytes() + sys.version.encode()).hexdigest()[:12]


if __name__ == "__main__":
    print(python_with(sys.argv[1]))
