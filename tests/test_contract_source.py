"""Contract files: what is refused, and on which line; nothing is converted, nothing is ignored."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import inspect

from contract_file import refusal, write
from zerolayer.contract import Contract, load
from zerolayer.contract_source import fields, key_lines
from zerolayer.errors import ContractError


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


# Named tables


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
