"""Paths in a contract: what is not there, what may not be looked at, and homes that nobody has; never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract_file import refusal
from zerolayer.contract import load, model_path
from zerolayer.contract_paths import WITH_HOME, why_missing
from zerolayer.errors import StartupError

# Imports come first: a user without rights may not enter the folder that they lie in.
AS_NOBODY = """
import os, sys
from pathlib import Path
from zerolayer.contract import find_file, load, model_path
from zerolayer.errors import StartupError
if os.geteuid() == 0:
    os.setuid(65534)
"""


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody without rights may enter."""
    folder = tmp_path / "locked"
    folder.mkdir()
    (folder / "m.gguf").touch()
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def as_nobody(code: str, *arguments: str, folder: Path | None = None) -> str:
    """What a user without rights is told who runs ``code`` in ``folder``."""
    command = [sys.executable, "-c", AS_NOBODY + code, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True, cwd=folder)
    return run.stdout.strip()


def test_what_is_there_is_not_missing(tmp_path: Path) -> None:
    assert why_missing(tmp_path) == ""


@pytest.mark.parametrize("name", ["absent", "file/below"])
def test_what_is_not_there_does_not_exist(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    assert why_missing(tmp_path / name) == "does not exist"


def test_a_name_that_no_file_can_have_is_one_plain_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot be looked at \(File name too long\)"):
        model_path(load(None, {}, {"model": str(tmp_path / ("x" * 300))}).contract)


def test_a_link_to_itself_is_one_plain_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StartupError, match=r"cannot be looked at \(Too many levels of symbolic links\)"):
        model_path(load(None, {}, {"model": str(tmp_path / "loop")}).contract)


def test_a_model_in_a_folder_that_may_not_be_entered_is_one_plain_error(locked: Path) -> None:
    code = """
try:
    model_path(load(None, {}, {"model": sys.argv[1]}).contract)
except StartupError as error:
    print(error.message)
"""
    assert "m.gguf cannot be looked at (Permission denied). Give --model" in as_nobody(code, str(locked / "m.gguf"))


def test_in_a_folder_that_may_not_be_entered_there_is_no_contract(locked: Path) -> None:
    assert as_nobody("print(find_file(None, {}, Path(sys.argv[1])))", str(locked)) == "None"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be where nobody else may go")
def test_a_working_directory_that_may_not_be_entered_holds_neither_contract_nor_model(locked: Path) -> None:
    code = """
print(find_file(None, {}, Path()), load(None, {}, {"model": "org/name"}).contract.model.hub_name)
"""
    assert as_nobody(code, folder=locked) == "None org/name"


@pytest.mark.parametrize("key", WITH_HOME)
def test_a_home_that_nobody_has_is_refused_with_its_line(tmp_path: Path, key: str) -> None:
    section, _, name = key.partition(".")
    message = refusal(tmp_path, f'[{section}]\n{name} = "~no_such_user/x"\n')
    assert "contract.toml:2: " in message
    assert "There is no such home directory: write the whole path." in message
