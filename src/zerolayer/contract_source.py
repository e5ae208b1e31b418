"""Where a contract's values come from: TOML with line numbers, environment variables, flags; and how they are printed.

Rules of this file: it knows no section and no rule of the contract (``contract.py`` does), and a value is never
separated from the place it came from, so that every refusal can name that place.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec import inspect

from zerolayer.errors import ContractError, system_reason

Sections = Mapping[str, inspect.Type]  # a struct type, or a tuple of one for an array of tables

DEFAULT = "default"
FILE_BYTES = 1 << 20  # a contract is a page of text; more is a mistake

# The flags of `zerolayer serve`, without the dashes, and the key that each one sets.
FLAGS: Mapping[str, str] = {
    "model": "model.path",
    "host": "listen.host",
    "port": "listen.port",
    "admin": "listen.admin",
    "admin-unix": "listen.admin_unix",
    "slots": "context.slots",
    "slot-tokens": "context.slot_tokens",
    "engine": "engine.kind",
    "threads": "engine.threads",
    "devices": "engine.devices",
    "peers": "cluster.peers",
    "address": "cluster.address",
    "node": "tenants.node",
    "weights": "engine.weights",
    "cors": "listen.cors",
    "insecure": "listen.insecure",
    "ledger": "ledger.path",
    "traces": "traces.endpoint",
    "log-format": "log.format",
    "access-log": "log.access",
    "key-set": "tenants.key_set",
    "node-key": "tenants.node_key",
    "certificate": "listen.certificate",
    "key": "listen.key",
    "client-ca": "listen.client_ca",
    "unix": "listen.unix",
}
# Variables that choose a file or a server; they set no key.
OTHER_VARIABLES = frozenset({"ZEROLAYER_API_KEY", "ZEROLAYER_CONTRACT", "ZEROLAYER_URL"})

_TOKEN = re.compile(
    r"""(?P<string>\"\"\"(?:[^\\]|\\.)*?\"\"\"\"{0,2}|'''.*?''''{0,2}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*')"""
    r"""|(?P<comment>\#[^\n]*)|(?P<newline>\n)|(?P<bare>[A-Za-z0-9_+-]+)|(?P<mark>[\[\]{}=.,])|(?P<other>.)""",
    re.DOTALL,
)
_PLACE = re.compile(r"\(at line (\d+), column (\d+)\)")
_WORDS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}


class Found(msgspec.Struct, frozen=True):
    """A value and where it was found: ``default``, ``FILE:LINE``, ``environment ZEROLAYER_X`` or ``flag --x``."""

    value: object
    origin: str


class Document(msgspec.Struct, frozen=True):
    """A parsed TOML file. ``lines`` maps a path of keys (and indices of arrays of tables) to a line, counted from 1."""

    values: Mapping[str, object]
    lines: Mapping[tuple[str | int, ...], int]
    name: str

    def origin(self, *path: str | int) -> str:
        """``FILE:LINE`` of a key, or of the nearest table that holds it."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return f"{self.name}:{self.lines[path[:end]]}"
        return f"{self.name}:1"


NO_FILE = Document({}, {}, "")


def refuse(origin: str, what: str, remedy: str) -> NoReturn:
    """Raise the one kind of error that this file and ``contract.py`` know."""
    raise ContractError(f"{origin}: {what}. {remedy}")


def suggestion(word: str, known: Iterable[str]) -> str:
    """``Did you mean "x"?``, or the list of what is known where nothing is near."""
    names = sorted(known)
    near = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f'Did you mean "{near[0]}"?' if near else f"Known here: {', '.join(names)}."


def read_toml(path: Path) -> Document:
    """Read a TOML 1.0 file (https://toml.io/en/v1.0.0). Raises ``ContractError`` with the line."""
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        refuse(name, f"cannot be read ({system_reason(error)})", "Give --contract the path of a readable file.")
    if len(data) > FILE_BYTES:
        refuse(name, f"is larger than {FILE_BYTES} bytes", "A contract is a short TOML file; check the path.")
    try:
        text = data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        refuse(f"{name}:{line}", f"byte {error.start} is not UTF-8", "Save the file as UTF-8.")
    try:
        return Document(tomllib.loads(text), key_lines(text), name)
    except tomllib.TOMLDecodeError as error:
        place = _PLACE.search(str(error))
        line, column = (int(place[1]), int(place[2])) if place else (text.count("\n") + 1, 1)
        refuse(f"{name}:{line}", f"is not TOML from column {column} on", "Write `key = value` under [section] headers.")
    except RecursionError:
        refuse(f"{name}:1", "nests too deeply", "A contract has sections and values, nothing deeper.")


def key_lines(text: str) -> dict[tuple[str | int, ...], int]:
    """The line of every key and table header of a valid TOML text, which ``tomllib`` does not tell.

    An inline table counts as one key.
    """
    lines: dict[tuple[str | int, ...], int] = {}
    counts: dict[tuple[str | int, ...], int] = {}
    table: tuple[str | int, ...] = ()
    key: list[str] = []
    line, brackets, depth, in_value = 1, 0, 0, False
    for token in _TOKEN.finditer(text):
        kind, word = token.lastgroup, token.group()
        if in_value:
            depth += (word in ("[", "{")) - (word in ("]", "}"))
            in_value = not (kind == "newline" and depth == 0)
        elif word == "[":
            brackets += 1
        elif word == "]" and key:
            table = _enter(key, counts, is_array=brackets == 2)
            for end in range(len(table), 0, -1):
                lines.setdefault(table[:end], line)
            key, brackets = [], 0
        elif word == "=":
            for end in range(len(key), 0, -1):
                lines.setdefault((*table, *key[:end]), line)
            key, in_value, depth = [], True, 0
        elif kind == "bare":
            key.append(word)
        elif kind == "string":
            key.append(tomllib.loads(f"key = {word}")["key"])
        line += word.count("\n")
    return lines


def _enter(key: list[str], counts: dict[tuple[str | int, ...], int], *, is_array: bool) -> tuple[str | int, ...]:
    """The path of a table header; in an array of tables the index of its latest table follows the array's name."""
    path: tuple[str | int, ...] = ()
    for depth, part in enumerate(key):
        path = (*path, part)
        if is_array and depth == len(key) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def variable(flag: str) -> str:
    """The environment twin of a flag: ``slot-tokens`` -> ``ZEROLAYER_SLOT_TOKENS``."""
    return "ZEROLAYER_" + flag.upper().replace("-", "_")


def read_texts(environ: Mapping[str, str], flags: Mapping[str, str]) -> dict[str, Found]:
    """Values given as text, by key; a flag outranks its environment twin, and an empty variable counts as not set."""
    found: dict[str, Found] = {}
    for flag, key in FLAGS.items():
        if environ.get(variable(flag), "") != "":
            found[key] = Found(environ[variable(flag)], f"environment {variable(flag)}")
        if flag in flags:
            found[key] = Found(flags[flag], f"flag --{flag}")
    for flag in flags:
        if flag not in FLAGS:
            refuse(f"flag --{flag}", "is unknown", suggestion(flag, FLAGS))
    return found


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A warning for each ``ZEROLAYER_*`` variable that nothing reads; no error, for other programs may set them."""
    known = {variable(flag) for flag in FLAGS} | OTHER_VARIABLES
    strangers = sorted(name for name in environ if name.startswith("ZEROLAYER_") and name not in known)
    return tuple(f"environment {name} is not used. {suggestion(name, known)}" for name in strangers)


def from_text(kind: inspect.Type, found: Found, key: str) -> object:
    """The typed value of a flag or variable. Lists are separated by commas."""
    text = str(found.value).strip()
    value: object = text
    if isinstance(kind, inspect.IntType):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
            refuse(found.origin, f"{key} must be a whole number", "Give digits only.")
        value = int(text)
    elif isinstance(kind, inspect.BoolType):
        if text.lower() not in _WORDS:
            refuse(found.origin, f"{key} must be true or false", "Give 1, true, yes or on; or 0, false, no or off.")
        value = _WORDS[text.lower()]
    elif isinstance(kind, inspect.VarTupleType):
        value = [part.strip() for part in text.split(",") if part.strip()]
    return checked(kind, value, key, found.origin)


def checked(kind: inspect.Type, value: object, key: str, origin: str) -> object:
    """``value`` as ``kind`` wants it. A bool is no number; a whole number may be a float; nothing else converts."""
    match kind:
        case inspect.IntType() if type(value) is int:
            return _ranged(kind, value, key, origin)
        case inspect.FloatType() if type(value) in (int, float) and math.isfinite(value):  # type: ignore[arg-type]
            return float(_ranged(kind, value, key, origin))  # type: ignore[arg-type]
        case inspect.BoolType() if type(value) is bool:
            return value
        case inspect.StrType() if type(value) is str:
            return _text(kind, value, key, origin)
        case inspect.LiteralType(values=values):
            if value in values:
                return value
            refuse(origin, f"{key} is none of {_listed(values)}", f"Write one of {_listed(values)}.")
        case inspect.VarTupleType(item_type=item) if isinstance(value, list):
            return tuple(checked(item, part, f"{key}[{at}]", origin) for at, part in enumerate(value))
        case inspect.TupleType(item_types=items) if isinstance(value, list) and len(value) == len(items):
            return tuple(checked(items[at], part, f"{key}[{at}]", origin) for at, part in enumerate(value))
    refuse(
        origin, f"{key} must be {_wanted(kind)}, not {_given(value)}", "Correct it, or remove it to get the default."
    )


def _ranged(kind: inspect.IntType | inspect.FloatType, value: float, key: str, origin: str) -> float:
    low, high = kind.ge, kind.le
    if (low is not None and value < low) or (high is not None and value > high):
        refuse(origin, f"{key} is {value}, outside {low} to {high}", f"Choose a value from {low} to {high}.")
    return value


def _text(kind: inspect.StrType, value: str, key: str, origin: str) -> str:
    shortest, longest = kind.min_length or 0, kind.max_length or FILE_BYTES
    if not shortest <= len(value) <= longest:
        refuse(origin, f"{key} has {len(value)} characters", f"From {shortest} to {longest} are allowed.")
    if any((character < " " and character not in "\n\t") or "\ud800" <= character <= "\udfff" for character in value):
        refuse(origin, f"{key} holds a control character, or a byte that is not UTF-8", "Remove it.")
    if kind.pattern is not None and not re.fullmatch(kind.pattern, value):
        refuse(origin, f"{key} does not have the form {kind.pattern}", "Write it in that form.")
    return value


def _listed(values: Iterable[object]) -> str:
    return " or ".join(f'"{value}"' for value in values)


def _wanted(kind: inspect.Type) -> str:
    match kind:
        case inspect.IntType():
            return "a whole number"
        case inspect.FloatType():
            return "a finite number"
        case inspect.BoolType():
            return "true or false"
        case inspect.TupleType(item_types=items):
            return f"a list of {len(items)} values"
        case inspect.VarTupleType():
            return "a list"
        case _:
            return "a string"


def _given(value: object) -> str:
    names = {
        bool: "a boolean",
        int: "a whole number",
        float: "a float",
        str: "a string",
        dict: "a table",
        list: "a list of another shape",
    }
    return names.get(type(value), "a date or time")


def fields(kind: inspect.Type) -> Mapping[str, inspect.Field]:
    """The fields of a struct type by name; none for any other type."""
    return {field.name: field for field in kind.fields} if isinstance(kind, inspect.StructType) else {}


def refuse_unknown_keys(document: Document, sections: Sections, later: Mapping[str, str]) -> None:
    """Refuse what no section knows; ``later`` gives the reason for names that a later version will know."""
    for section, table in document.values.items():
        origin = document.origin(section)
        if section not in sections:
            refuse(origin, f'"{section}" is no section of a contract', suggestion(section, sections))
        kind = sections[section]
        rows: list[tuple[tuple[str | int, ...], Mapping[str, object]]] = []
        if isinstance(kind, inspect.VarTupleType):
            if not isinstance(table, list) or not all(isinstance(row, dict) for row in table):
                refuse(origin, f"{section} must be an array of tables", f"Write [[{section}]] and its keys below.")
            rows, kind = [((section, at), row) for at, row in enumerate(table)], kind.item_type
        elif isinstance(table, dict):
            rows = [((section,), table)]
        else:
            refuse(origin, f"{section} must be a table", f"Write [{section}] and its keys below.")
        for place, row in rows:
            for key in row:
                if key not in fields(kind):
                    _refuse_key(document.origin(*place, key), section, key, fields(kind), later)


def _refuse_key(origin: str, section: str, key: str, known: Iterable[str], later: Mapping[str, str]) -> NoReturn:
    if reason := later.get(f"{section}.{key}", later.get(section)):
        refuse(origin, f'"{key}" cannot be set: {reason}', "Remove it.")
    refuse(origin, f'"{key}" is no key of [{section}]', suggestion(key, known))


def merge(document: Document, sections: Sections, texts: Mapping[str, Found]) -> dict[str, Found]:
    """Every ``section.key`` with its checked value and origin; an array of tables is one value under its section."""
    found: dict[str, Found] = {}
    for section, kind in sections.items():
        table = document.values.get(section, {})
        if isinstance(kind, inspect.VarTupleType):
            rows = _rows(document, section, kind.item_type)
            found[section] = Found(rows, document.origin(section) if rows else DEFAULT)
        for name, field in fields(kind).items():
            key = f"{section}.{name}"
            if key in texts:
                found[key] = Found(from_text(field.type, texts[key], key), texts[key].origin)
            elif isinstance(table, dict) and name in table:
                origin = document.origin(section, name)
                found[key] = Found(checked(field.type, table[name], key, origin), origin)
            else:
                found[key] = Found(field.default, DEFAULT)
    return found


def _rows(document: Document, section: str, kind: inspect.Type) -> tuple[Mapping[str, object], ...]:
    """The tables of ``[[section]]``, checked; their names differ."""
    tables = document.values.get(section, [])
    rows: list[Mapping[str, object]] = []
    for at, table in enumerate(tables if isinstance(tables, list) else []):
        for name, field in fields(kind).items():
            if field.required and name not in table:
                refuse(document.origin(section, at), f"[[{section}]] has no {name}", f"Add {name}.")
        places = {name: document.origin(section, at, name) for name in table}
        row = {name: checked(fields(kind)[name].type, table[name], f"{section}.{name}", places[name]) for name in table}
        if row["name"] in [other["name"] for other in rows]:
            refuse(places["name"], f"two [[{section}]] tables have the same name", "Rename one of them.")
        rows.append(row)
    return tuple(rows)


def rendered(values: Mapping[str, Found], notes: Mapping[str, str]) -> str:
    """TOML of ``section.key`` values, each with a comment: where it came from, then the key's note if it has one."""
    rows: list[tuple[str, str]] = []
    section = ""
    for key, found in values.items():
        head, _, name = key.rpartition(".")
        if head != section:
            rows.append((f"\n[{head}]" if rows else f"[{head}]", ""))
            section = head
        rows.append((f"{name} = {literal(found.value)}", "; ".join(filter(None, (found.origin, notes.get(key, ""))))))
    width = min(48, max((len(left) for left, comment in rows if comment), default=0))
    return "".join(f"{left:<{width}}  # {comment}\n" if comment else f"{left}\n" for left, comment in rows)


def tables(contract: msgspec.Struct, origins: Mapping[str, str]) -> str:
    """TOML of all tables of all ``[[section]]``s."""
    text = ""
    for section, rows in msgspec.structs.asdict(contract).items():
        for row in rows if isinstance(rows, tuple) else ():
            lines = [f"{key} = {literal(value)}\n" for key, value in msgspec.structs.asdict(row).items()]
            text += f"\n[[{section}]]  # {origins[section]}\n{''.join(lines)}"
    return text


def literal(value: object) -> str:
    """A TOML literal. JSON's string escapes are TOML's, except that TOML wants DEL escaped too."""
    if isinstance(value, tuple):
        return f"[{', '.join(literal(part) for part in value)}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
