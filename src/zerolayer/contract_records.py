"""Sections ``[ledger]``, ``[traces]``, ``[cache]`` and ``[log]`` of the contract: what is written down, kept, told."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

AuditLevel = Literal["off", "metadata", "matches"]
AuditRules = tuple[Literal["amounts", "dates"], ...]


class Ledger(Struct, frozen=True):
    """Where a record of every request goes, and when it is on the disk.

    ``path``: a folder, ``auto`` (in the user's state folder, by port; none where the system chooses the port) or
    ``off``. A record survives the death of the process at once, that of the machine after ``fsync_ms`` at most.
    """

    path: Annotated[str, Meta(min_length=1, max_length=4096)] = "auto"
    fsync_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 1000  # 0: when the system likes
    segment_mb: Annotated[int, Meta(ge=1, le=4096)] = 64
    keep: Annotated[int, Meta(ge=0, le=100_000_000)] = 0  # segments; the oldest ones leave. 0: all
    audit: AuditLevel = "metadata"  # of every tenant that no [[tenant]] table names
    audit_rules: AuditRules = ("amounts", "dates")  # whose text is kept where the level is "matches"


class Traces(Struct, frozen=True):
    """Where OpenTelemetry spans of requests go: an OTLP collector's address (HTTP, protobuf); empty: nowhere."""

    endpoint: Annotated[str, Meta(pattern=r"(https?://[0-9A-Za-z.\[\]:_/-]{1,1024})?")] = ""
    share: Annotated[float, Meta(ge=0.0, le=1.0)] = 1.0  # of the requests whose client does not say


class Cache(Struct, frozen=True):
    """What is kept of earlier requests. Kept prompts are the section ``context``'s ``prefixes``."""

    tenant_share: Annotated[float, Meta(ge=0.01, le=1.0)] = 0.5  # of either cache: what one tenant may fill
    answers_mb: Annotated[int, Meta(ge=0, le=65536)] = 0  # whole answers to equal, deterministic requests; 0: none


class Log(Struct, frozen=True):
    """What stderr is told, a line an event."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"
    access: bool = False  # a line for each request too; the ledger is the record
