"""schemathesis as the judge of ``/openapi.json``: whatever the document allows or forbids, no answer is a 500."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from judges.client_environments import python_with

pytestmark = pytest.mark.judge
EXAMPLES = 25  # of each operation


def test_no_request_that_the_document_suggests_is_answered_500(server: str, tmp_path: Path) -> None:
    schemathesis = python_with("requirements-schema.txt").parent / "schemathesis"
    command = [
        schemathesis, "run", f"{server}/openapi.json", "--checks", "not_a_server_error,content_type_conformance",
        "--max-examples", str(EXAMPLES), "--mode", "all", "--phases", "coverage,fuzzing", "--generation-deterministic",
        "--request-timeout", "20", "--exclude-path", "/v1/generate",  # which has no JSON
    ]  # fmt: skip
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=400, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-1000:]
    assert "fuzzing" in run.stdout.lower()
