"""The contract as it is printed and as the documentation tells it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from contract_file import write
from zerolayer import contract as contract_module
from zerolayer.contract import Contract, load, to_json, to_toml
from zerolayer.contract_source import FLAGS, fields, literal


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
    if not model.strip() or model.lstrip().startswith("~"):  # nothing, and homes that may not be there, are refused
        return
    effective = load(None, {}, flags)
    path = write(tmp_path_factory.mktemp("printed"), to_toml(effective))
    assert load(path, {}, {}).contract == effective.contract


def test_the_json_form_carries_a_version_value_and_origin() -> None:
    printed = msgspec.json.decode(to_json(load(None, {}, {"slots": "3"})))
    assert printed["version"] == 1
    assert printed["values"]["context.slots"] == {"value": 3, "origin": "flag --slots"}


def test_both_printed_forms_have_everything_that_the_contract_has(tmp_path: Path) -> None:
    text = (
        '[[program]]\nname = "chat"\ntemperature = 0.7\n[[system]]\nname = "support"\ntext = "Be brief."\n'
        '[[tenant]]\nname = "acme"\nconcurrent = 3\n'
    )
    path = write(tmp_path, text)
    effective = load(path, {}, {"slots": "3"})
    printed = msgspec.json.decode(to_json(effective))
    sections: dict[str, object] = {name: found["value"] for name, found in printed["tables"].items()}
    for key, found in printed["values"].items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = found["value"]
    assert msgspec.convert(sections, Contract) == effective.contract
    assert printed["tables"]["tenant"]["origin"] == f"{path}:7"
    assert load(write(tmp_path, to_toml(effective)), {}, {}).contract == effective.contract


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
