"""Kubernetes' own schemas as the judge of what ``zerolayer k8s`` prints, those of an old release and the newest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zerolayer import cli

pytestmark = pytest.mark.judge
validate = pytest.importorskip("kubernetes_validate", reason="install it with: pip install kubernetes-validate")


@pytest.mark.parametrize(
    "form", [[], ["--model", "a: b # c", "--slots", "4"], ["--device", "nvidia.com/gpu", "--insecure"]]
)
@pytest.mark.parametrize("release", ["1.29", validate.latest_version()])
def test_the_manifests_are_what_the_api_takes_and_nothing_more(form, release, tmp_path: Path, capsys) -> None:
    assert cli.main(["k8s", "--image", "registry.example/zerolayer:1", *form]) == 0
    file = tmp_path / "manifests.yaml"
    file.write_text(capsys.readouterr().out)
    program = str(Path(sys.executable).with_name("kubernetes-validate"))
    judged = subprocess.run(
        [program, "-k", release, "--strict", str(file)], capture_output=True, text=True, timeout=60, check=False
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert (judged.stdout + judged.stderr).count("passed") == 3


def test_the_judge_refuses_what_the_api_does_not_take(tmp_path: Path, capsys) -> None:
    cli.main(["k8s", "--image", "registry.example/zerolayer:1"])
    file = tmp_path / "manifests.yaml"
    file.write_text(capsys.readouterr().out.replace("maxUnavailable", "maxUnavailible"))
    program = str(Path(sys.executable).with_name("kubernetes-validate"))
    judged = subprocess.run([program, "--strict", str(file)], capture_output=True, text=True, timeout=60, check=False)
    assert judged.returncode != 0
