"""The Dockerfile against what it is built from: its context, its command, its health check."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "front"))

from echo_model import EchoEngine, LastMessage
from echo_service import Service

from zerolayer.contract import load
from zerolayer.errors import Unavailable

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").replace("\\\n", "")
SENT = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line.startswith("!")}


def instruction(name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", DOCKERFILE, re.MULTILINE)


def test_what_is_copied_exists_and_is_all_that_is_sent_to_the_builder():
    copied = {source for line in instruction("COPY") if "--from" not in line for source in line.split()[:-1]}
    assert copied == SENT
    assert all((ROOT / source).exists() for source in copied)


def test_the_build_needs_no_file_that_is_not_copied():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert {"README.md", "LICENSE"} <= {name for name in SENT if name in project}
    assert not re.findall(r"\$\{CMAKE_SOURCE_DIR\}/(?!src)", (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))


def test_its_environment_and_its_command_make_a_contract():
    (environment,), (command,) = instruction("ENV"), instruction("CMD")
    variables = dict(pair.split("=") for pair in environment.split())
    assert json.loads(command) == ["serve", "--insecure"]
    contract = load(None, variables, {"insecure": "true"}).contract
    assert (contract.listen.host, str(contract.listen.port)) == ("0.0.0.0", instruction("EXPOSE")[0])


def test_it_runs_as_nobody_special():
    (user,) = instruction("USER")
    assert int(user) > 0
    assert f"--uid {user}" in DOCKERFILE


def test_the_health_check_tells_a_server_that_takes_work_from_one_that_does_not():
    (check,) = re.findall(r"^HEALTHCHECK .* CMD (\[.+\])$", DOCKERFILE, re.MULTILINE)
    _, flag, script = json.loads(check)
    engine = EchoEngine(slots=2, slot_tokens=512, chunk_tokens=64, step_us=200)
    service = Service({"slots": "2", "slot-tokens": "512"}, engine, None, 0.02, {}, {}, LastMessage)
    script = script.replace("127.0.0.1:8000", f"127.0.0.1:{service.port}").replace("timeout=1)", "timeout=9)")

    def ask() -> int:
        return subprocess.run([sys.executable, flag, script], capture_output=True, check=False).returncode

    assert ask() == 0
    service.on_loop(lambda: service.server.guard.close(Unavailable("closed")))
    assert ask() != 0
    service.close()
