"""The sections ``[tenants]`` and ``[[tenant]]`` of the contract: whose keys are taken, and what each may use."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from zerolayer.contract_records import AuditLevel, AuditRules

_Path = Annotated[str, Meta(max_length=4096)]
_Limit = Annotated[int, Meta(ge=0, le=(1 << 32) - 1)]
_ComputeUs = Annotated[int, Meta(ge=0, le=10**15)]


class Tenants(Struct, frozen=True):
    """Whose keys are taken, and what each tenant may use where no ``[[tenant]]`` says otherwise; 0 = no limit."""

    key_set: _Path = ""  # keyset.json of `zerolayer keys new`; empty: no keys, and loopback only
    revocations: _Path = ""  # empty: revoked.json beside the key set
    root: Annotated[str, Meta(pattern=r"([A-Za-z0-9+/]{43}=)?")] = ""  # empty: the root that the key set names at start
    revocations_max_age_s: Annotated[int, Meta(ge=0, le=31_536_000)] = 0  # with an older list nobody comes in; 0 = any
    state: _Path = ""  # budgets that survive a restart; empty: in the user's state folder, by port
    nodes: tuple[
        Annotated[str, Meta(pattern=r"https?://[0-9A-Za-z.\[\]:_-]{1,253}")], ...
    ] = ()  # that share the limits
    node: Annotated[str, Meta(max_length=260)] = ""  # which of them this one is
    node_key: _Path = ""  # file with a key of `zerolayer keys issue --node`
    requests_per_minute: _Limit = 0
    tokens_per_minute: _Limit = 0
    concurrent: Annotated[int, Meta(ge=0, le=65_535)] = 0
    compute_us_per_day: _ComputeUs = 0

    @property
    def knows_itself(self) -> bool:
        """Whether a node that shares limits has keys, and is one of the nodes."""
        return not self.nodes or (self.node in self.nodes and bool(self.key_set))


class Tenant(Struct, frozen=True):
    """What one tenant may use with all its keys; 0 = no limit."""

    name: Annotated[str, Meta(pattern=r"[a-z0-9][a-z0-9._-]{0,23}")]
    audit: AuditLevel = "metadata"  # how much the ledger keeps of its requests
    audit_rules: AuditRules = ("amounts", "dates")
    requests_per_minute: _Limit = 0
    tokens_per_minute: _Limit = 0
    concurrent: Annotated[int, Meta(ge=0, le=65_535)] = 0
    compute_us_per_day: _ComputeUs = 0
