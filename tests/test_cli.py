"""The command line: what it takes, what it hands on, how it fails."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from zerolayer import cli
from zerolayer.contract import Effective
from zerolayer.contract_source import FLAGS, variable
from zerolayer.errors import StartupError


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for flag in [*FLAGS, "contract", "url"]:
        monkeypatch.delenv(variable(flag), raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Effective]:
    """What ``serve`` was given, instead of a server."""
    given: list[Effective] = []
    stand_in(monkeypatch, lambda effective, takeover: given.append(effective) or 0)
    return given


def stand_in(monkeypatch: pytest.MonkeyPatch, main: Callable[..., int | None]) -> None:
    module = types.ModuleType("zerolayer.serve.command")
    module.__dict__["main"] = main
    monkeypatch.setitem(sys.modules, "zerolayer.serve.command", module)


def test_serve_hands_the_effective_contract_to_the_server(served: list[Effective]) -> None:
    assert (
        cli.main(["serve", "--slots", "3", "--engine", "mock:step_us=10", "--cors", "http://a", "--cors", "http://b"])
        == 0
    )
    contract = served[0].contract
    assert (contract.context.slots, contract.engine.kind) == (3, "mock:step_us=10")
    assert contract.listen.cors == ("http://a", "http://b")
    assert served[0].origin["context.slots"] == "flag --slots"


def test_flags_that_are_not_given_leave_the_contract_alone(served: list[Effective]) -> None:
    cli.main(["serve"])
    assert set(served[0].origin.values()) == {"default"}


def test_the_folders_own_contract_is_read(served: list[Effective], tmp_path: Path) -> None:
    (tmp_path / "contract.toml").write_text("[context]\nslots = 7\n")
    cli.main(["serve"])
    assert served[0].contract.context.slots == 7
    assert served[0].origin["context.slots"] == "contract.toml:2"


def test_the_environment_is_read(served: list[Effective], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZEROLAYER_PORT", "9000")
    cli.main(["serve"])
    assert served[0].contract.listen.port == 9000


def test_help_names_every_flag_with_its_environment_twin(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["serve", "--help"])
    text = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert caught.value.code == 0
    for flag in [*FLAGS, "contract"]:
        assert f"--{flag}" in text
        assert f"[{variable(flag)}]" in text


def test_a_refused_contract_is_one_message_with_its_row_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["contract", "--slots", "0"]) == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "zerolayer: flag --slots: context.slots is 0, outside 1 to 1024. Choose a value from 1 to 1024.",
        "zerolayer: more in docs/troubleshooting.md#contract_error",
    ]
    assert printed.out == ""


def test_a_failed_start_is_one_message_and_exit_code_1(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fail(effective: Effective, takeover: str | None) -> int:
        raise StartupError("Port 8000 is taken. Give --port another one.")

    stand_in(monkeypatch, fail)
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "zerolayer: Port 8000 is taken. Give --port another one.",
        "zerolayer: more in docs/troubleshooting.md#startup_error",
    ]


def test_what_a_server_said_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def fail(effective: Effective, takeover: str | None) -> int:
        raise StartupError("\x1b[2J\x07told\r\nby a server")

    stand_in(monkeypatch, fail)
    assert cli.main(["serve"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == r"zerolayer: \x1b[2J\x07told\r\nby a server"


def test_an_interrupt_is_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupt(effective: Effective, takeover: str | None) -> int:
        raise KeyboardInterrupt

    stand_in(monkeypatch, interrupt)
    assert cli.main(["serve"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["keys"], ["ray"]])
def test_whoever_names_no_command_is_shown_all_of_them(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(command)
    shown = capsys.readouterr()
    assert (caught.value.code, shown.out) == (2, "")
    with pytest.raises(SystemExit):
        cli.main([*command, "--help"])
    assert capsys.readouterr().out == shown.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serve", "--slotz", "3"], "zerolayer serve: error: it does not take --slotz; did you mean --slots?"),
        (["serve", "--prot=9000"], "zerolayer serve: error: it does not take --prot; did you mean --port?"),
        (["keys", "new", "--jsn"], "zerolayer keys new: error: it does not take --jsn; did you mean --json?"),
        (["chat", "why", "not"], "zerolayer chat: error: it does not take not"),
    ],
)
def test_the_command_that_does_not_know_a_word_says_so_and_what_is_like_it(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == told


def test_each_command_has_one_line_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    rows = capsys.readouterr().out.partition("  COMMAND\n")[2].splitlines()
    assert all(re.fullmatch(r"    [a-z0-9]+ {2,}[a-z].*", row) for row in rows)


@pytest.mark.parametrize(
    "arguments",
    [[], ["serv"], ["serve", "--slot", "3"], ["chat", "--port", "0", "hi"], ["chat", "--port", "1", "--url", "x"]],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    assert "usage: zerolayer" in capsys.readouterr().err


def test_contract_prints_toml_with_origins(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["contract", "--port", "9000"]) == 0
    assert re.search(r"^port = 9000 +# flag --port$", capsys.readouterr().out, re.MULTILINE)


def test_contract_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["contract", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"]["listen.port"] == {"value": 8000, "origin": "default"}


def test_an_unknown_variable_is_a_warning_on_stderr(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setenv("ZEROLAYER_PROT", "1")
    assert cli.main(["contract"]) == 0
    assert "warning: environment ZEROLAYER_PROT is not used" in capsys.readouterr().err


def test_chat_with_nothing_listening_says_how_to_start_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chat", "hi", "--port", "1"]) == 1
    assert "make serve" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environ", "url"),
    [
        ([], {}, "http://127.0.0.1:8000"),
        ([], {"ZEROLAYER_PORT": "9000"}, "http://127.0.0.1:9000"),
        ([], {"ZEROLAYER_PORT": "9000", "ZEROLAYER_URL": "http://a:1"}, "http://a:1"),
        (["--port", "9001"], {"ZEROLAYER_URL": "http://a:1"}, "http://127.0.0.1:9001"),
        (["--url", "http://b:2"], {"ZEROLAYER_URL": "http://a:1"}, "http://b:2"),
    ],
)
def test_chat_asks_the_server_that_the_flags_then_the_environment_name(
    arguments: list[str], environ: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr("zerolayer.client.terminal.chat", lambda options: asked.append(options.url) or 0)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert cli.main(["chat", "hi", *arguments]) == 0
    assert asked == [url]


def test_help_imports_neither_server_nor_client_nor_contract() -> None:
    code = (
        "import sys\nfrom zerolayer import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([name for name in sys.modules if name.startswith('zerolayer.')], 'msgspec' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    parts = [
        "argument_types",
        "cli",
        "check",
        "check.arguments",
        "cluster",
        "cluster.k8s_command",
        "cluster.ray_command",
        "guard",
        "guard.auth",
        "guard.auth.arguments",
        "guard.ledger",
        "guard.ledger.arguments",
    ]
    assert done.stdout.splitlines()[-1] == f"{[f'zerolayer.{part}' for part in parts]} False"


def test_the_module_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "zerolayer", "--version"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert re.fullmatch(r"zerolayer \d+\S*\n", done.stdout)


def test_the_readme_lists_the_commands_that_exist_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    commands = re.findall(r"^    ([a-z0-9]+)(?: |$)", capsys.readouterr().out, re.MULTILINE)
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `zerolayer ([a-z0-9]+)", readme, re.MULTILINE) == commands
