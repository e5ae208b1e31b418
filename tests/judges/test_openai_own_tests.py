"""The tests that the ``openai`` package brings for its own resources, run against this server instead of their mock.

They come with the package's source archive. Left out, because this service has no such thing: every resource but chat
completions, completions, models and responses (plain and beta); of these whatever reads, changes, lists, cancels or
compacts what was kept (nothing is), and deleting a model. The mock takes any value, and some of the tests' values
contradict each other; ``CHANGED`` says which are changed, and why.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from judges.client_environments import KEPT, python_with
from reference.server import running_server
from reference.tiny_model import LLAMA_64, write_tiny_model

pytestmark = pytest.mark.judge
VERSION = "3.57.0"
RUN = {  # file: which of its tests
    "chat/test_completions.py": "create",
    "test_completions.py": "create",
    "test_models.py": "not delete",
    "test_responses.py": "create",
    "responses/test_input_tokens.py": "count",
    "beta/test_responses.py": "create",
    "beta/responses/test_input_tokens.py": "count",
}
CHANGED = [
    (r"^( +)audio=\{\n.*?\n\1\},\n", ""),  # asks for sound while modalities asks for text
    (r"^( +)web_search_options=\{\n.*?\n\1\},\n", ""),  # there is no web search here
    (r'logit_bias=\{"foo": 0\}', 'logit_bias={"1": 0}'),  # foo is no token id
    (r"^( +)max_completion_tokens=0,\n", ""),  # an empty answer
    (r"max_tokens=0,", "max_tokens=8,"),
    (r"(stream=False,\n)( +)stream_options=\{\n.*?\n\2\},\n", r"\1"),  # options of a stream that is none
    (r"best_of=0", "best_of=1"),  # the best of none
    (r"echo=True", "echo=False"),  # OpenAI says null for a prompt's first token, and its own types forbid it
    (r'^( +)suffix="test.",\n', ""),  # no model here fills in
    (r"\.(create|count)\(\)", r'.\1(model="m", input="x")'),  # without model and input there is nothing to answer
    (r"(responses(?:\.with_\w+)?\.create\(\n +)(stream=True,\n +\))", r'\1model="m", input="x", \2'),
    (r"background=True", "background=False"),  # nothing is kept: no background, no conversation, no stored prompt
    (r'^( +)(conversation|previous_response_id)="\w+",\n', ""),
    (r"^( +)prompt=\{\n.*?\n\1\},\n", ""),
]  # fmt: skip


@pytest.fixture(scope="module")
def sources() -> Path:
    """The package's source archive, with the values changed."""
    changes = hashlib.sha256(repr((RUN, CHANGED)).encode()).hexdigest()[:12]
    folder = KEPT / f"openai-tests-{changes}" / f"openai-{VERSION}"
    if not folder.exists():
        fetch = ["-m", "pip", "download", "-q", "--no-deps", "--no-binary", "openai", f"openai=={VERSION}", "-d", KEPT]
        if subprocess.run([sys.executable, *fetch], check=False, capture_output=True).returncode != 0:
            pytest.skip(f"its source could not be fetched; try: pip download --no-binary openai openai=={VERSION}")
        with tarfile.open(KEPT / f"openai-{VERSION}.tar.gz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and newer (PEP 706)
            archive.extractall(folder.parent)
        for file in RUN:
            path = folder / "tests" / "api_resources" / file
            text = path.read_text()
            for pattern, value in CHANGED:
                text = re.sub(pattern, value, text, flags=re.MULTILINE | re.DOTALL)
            path.write_text(text)
    return folder


@pytest.fixture(scope="module")
def any_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that takes any model name."""
    folder = tmp_path_factory.mktemp("any")
    model = write_tiny_model(folder / "tiny.gguf", LLAMA_64)
    (folder / "contract.toml").write_text('[model]\naliases = ["*"]\n')
    contract = ("--contract", str(folder / "contract.toml"), "--model", str(model))
    with running_server(*contract, "--slots", "4", "--slot-tokens", "512", "--threads", "1") as url:
        yield url


@pytest.mark.parametrize("file", RUN)
def test_the_package_s_own_tests_pass(file: str, sources: Path, any_name: str) -> None:
    command = [
        python_with("requirements-openai-tests.txt"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir=.",
        "-c", "pyproject.toml", "-o", "addopts=--tb=short", f"tests/api_resources/{file}", "-k", RUN[file],
    ]  # fmt: skip
    environment = os.environ | {"TEST_API_BASE_URL": f"{any_name}/v1"}
    run = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    assert re.search(r"\d+ passed", run.stdout)
