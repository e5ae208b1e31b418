"""The anthropic SDK's own ``tests/api_resources`` as the judge, unmodified, from its source archive.

What runs: messages, counting and models, plain and beta, synchronous and asynchronous, with loose and strict validation
of replies. Left out: all other files (batches, files, skills, agents and the administration of Anthropic's platform,
which are no part of this service), and the ``aiohttp`` variants, which test the SDK's other transport. The tests of
``create`` with all parameters send a tool whose ``strict`` schema has "bar" in the place of a schema, which is a 400
here; they run with that one value mended. The conftest is replaced: theirs imports recorders that are not used here.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from judges.client_environments import KEPT
from reference.server import running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
FILES = ("test_messages.py", "test_models.py", "beta/test_messages.py", "beta/test_models.py")
MALFORMED = "create_with_all_params"
MENDED = {"test_messages.py": "test_messages_mended.py", "beta/test_messages.py": "beta/test_messages_mended.py"}
CONTRACT = """
[model]
aliases = ["*"]
[limits]
max_tokens = 16
default_max_tokens = 16
"""
CONFTEST = """
import asyncio, inspect, os
import pytest
from anthropic import Anthropic, AsyncAnthropic

URL = os.environ["TEST_API_BASE_URL"]
pytest.register_assert_rewrite("tests.utils")

@pytest.fixture
def client(request):
    with Anthropic(base_url=URL, api_key="none", _strict_response_validation=getattr(request, "param", True)) as client:
        yield client

@pytest.fixture
def async_client(request):
    return AsyncAnthropic(base_url=URL, api_key="none", _strict_response_validation=getattr(request, "param", True))

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own with the package's ``tests``; the archive is kept."""
    name = f"anthropic-{version('anthropic')}"
    archive, wanted = KEPT / f"{name}.tar.gz", name.replace("-", "==")
    if not archive.exists():
        fetch = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", "anthropic", wanted, "-d", KEPT]
        if subprocess.run([sys.executable, *fetch], check=False, capture_output=True).returncode != 0:
            pytest.skip(f"its source could not be fetched; try: pip download --no-binary anthropic {wanted}")
    folder: Path = tmp_path_factory.mktemp("anthropic")
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and newer (PEP 706)
        opened.extractall(folder)
    (folder / name / "tests" / "conftest.py").write_text(CONFTEST)
    return folder / name


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that answers to every name, and answers briefly."""
    folder = tmp_path_factory.mktemp("any")
    model, contract = write_tiny_model(folder / "tiny.gguf", LLAMA_64), folder / "contract.toml"
    contract.write_text(CONTRACT)
    shape = ("--slots", "4", "--slot-tokens", "512", "--threads", "1")
    with running_server("--model", str(model), "--contract", str(contract), *shape) as url:
        yield url


def run(suite: Path, url: str, names: Iterable[str], chosen: str) -> dict[str, str]:
    """Each test's name with its outcome."""
    report = suite / "report.xml"
    files = [f"tests/api_resources/{name}" for name in names]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "PYTEST_"))}
    quiet = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(suite), f"--junitxml={report}"]
    environment |= {"TEST_API_BASE_URL": url, "PYTHONPATH": str(suite)}
    command = [sys.executable, "-m", "pytest", *quiet, "-k", chosen, *files]
    subprocess.run(command, cwd=suite, env=environment, capture_output=True, check=False)
    cases = ET.parse(report).getroot().iter("testcase")
    return {
        f"{case.get('classname')}.{case.get('name')}": "failed"
        if case.find("failure") is not None or case.find("error") is not None
        else "passed"
        for case in cases
    }


def failures(outcomes: dict[str, str]) -> list[str]:
    return [name for name, outcome in outcomes.items() if outcome != "passed"]


def test_every_applicable_test_of_the_sdk_passes(suite: Path, url: str) -> None:
    outcomes = run(suite, url, FILES, f"not aiohttp and not {MALFORMED}")
    assert failures(outcomes) == []
    assert len(outcomes) > 100


def test_with_its_schema_mended_a_call_with_every_member_of_the_api_is_served(suite: Path, url: str) -> None:
    folder = suite / "tests" / "api_resources"
    for name, mended in MENDED.items():
        text = (folder / name).read_text()
        assert '"location": "bar"' in text
        (folder / mended).write_text(re.sub(r'"(location|unit)": "bar"', r'"\1": {"type": "boolean"}', text))
    outcomes = run(suite, url, MENDED.values(), f"not aiohttp and {MALFORMED}")
    assert failures(outcomes) == []
    assert len(outcomes) >= 16
