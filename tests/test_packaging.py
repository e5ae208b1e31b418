"""What people install: the wheel, tested where the sources are out of reach."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.judge


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in ``folder``; its output, which is the failure's text where it fails."""
    # What pip installs is compiled when it is imported: most of it never is.
    environ = os.environ | {"PIP_NO_COMPILE": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environ)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


def environment(folder: Path, *install: str | Path) -> Path:
    """A fresh environment in ``folder`` with what pip installs there."""
    venv.create(folder, with_pip=False)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python")
    run(*pip, "install", "--quiet", *install, folder=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the source archive, as ``python -m build`` does; quickly, as nothing here is about speed."""
    folder = tmp_path_factory.mktemp("dist")
    quick = "--config-setting=cmake.define.OPTIMISATION=-O0"
    run(sys.executable, "-m", "build", quick, "--outdir", folder, ROOT, folder=folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with nothing but the wheel and what it needs."""
    return environment(tmp_path_factory.mktemp("environment"), wheel)


def test_the_wheel_holds_the_package_its_kernels_and_its_licence_and_no_sources_of_kernels(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "zerolayer/py.typed" in names
    assert any(name.startswith("zerolayer/model/_native.") for name in names)
    assert any(name.startswith("zerolayer/guard/_native.") and name.endswith(".so") for name in names)
    assert any(name.startswith("zerolayer/front/_native.") and name.endswith(".so") for name in names)
    assert any(name.startswith("zerolayer/wire/_native.") and name.endswith(".so") for name in names)
    assert any(name.startswith("zerolayer/text/_native.") and name.endswith(".so") for name in names)
    assert any(name.startswith("zerolayer/observe/_native.") and name.endswith(".so") for name in names)
    assert any(name.endswith("/LICENSE") for name in names)
    assert [name for name in names if name.endswith((".cpp", ".hpp", ".h")) or "test" in name] == []


def test_the_installed_wheel_imports_its_own_files(installed: Path) -> None:
    code = "import zerolayer.model._native as native, zerolayer.client.client; print(native.__file__)"
    path = run(installed / "bin" / "python", "-I", "-c", code, folder=installed).strip()
    assert Path(path).is_relative_to(installed)


def test_the_client_works_where_the_wheel_alone_is_installed(wheel: Path, tmp_path: Path) -> None:
    environment(tmp_path, wheel, "--no-deps")
    code = """
from zerolayer import Client
from zerolayer.client.errors import NotReachable
try:
    Client("http://127.0.0.1:9").chat([{"role": "user", "content": "Hi"}], model="m")
except NotReachable as error:
    print(error.sent)
"""
    assert run(tmp_path / "bin" / "python", "-I", "-c", code, folder=tmp_path).strip() == "False"


def test_the_installed_command_runs(installed: Path) -> None:
    assert run(installed / "bin" / "zerolayer", "--version", folder=installed).startswith("zerolayer ")
    assert "slots = 16" in run(installed / "bin" / "zerolayer", "contract", folder=installed)
