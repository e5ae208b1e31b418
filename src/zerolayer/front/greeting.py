"""What a person reads when the server is ready: where it listens, what it serves, and a line to try."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Protocol

import zerolayer
from zerolayer.contract import Contract
from zerolayer.front.listener import accept_queue
from zerolayer.model.engine import EngineInfo

_ANY = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class Running(Protocol):
    """What the greeting tells of a server that has started."""

    @property
    def info(self) -> EngineInfo:
        """The engine."""

    @property
    def port(self) -> int:
        """Port of the service."""

    @property
    def admin_port(self) -> int:
        """Port of the admin listener."""

    @property
    def connection_limit(self) -> int:
        """How many connections the service takes; the system may have lowered it."""

    @property
    def admin_socket(self) -> str:
        """Path of the admin's Unix socket, if there is one."""

    @property
    def ledger_folder(self) -> Path | None:
        """Where requests are written down, if anywhere."""

    @property
    def worst_stall_ms(self) -> int:
        """The longest gap between two tokens of a stream."""


def greeting(contract: Contract, name: str, server: Running, *, loop: str) -> str:
    """The text for stdout. ``loop``: what the system granted to the thread of the event loop."""
    info, connections = server.info, server.connection_limit
    host = contract.listen.host
    scheme = "https" if contract.listen.certificate else "http"
    address = f"{scheme}://{_ANY.get(host, f'[{host}]' if ':' in host else host)}:{server.port}"
    admin = f"http://{contract.listen.admin.rpartition(':')[0]}:{server.admin_port}/"
    question = [{"role": "user", "content": "Why is the sky blue?"}]
    body = json.dumps({"model": name, "stream": True, "messages": question})
    threads = f"{info.threads} thread{'s' if info.threads != 1 else ''}"
    lines = [
        f"zerolayer {zerolayer.__version__} is ready ({process_age_s():.2f} s after the process started)",
        f"  address   {address}/v1",
        *([f"  socket    {contract.listen.unix}"] if contract.listen.unix else []),
        f"  watch     {admin}",
        f"  metrics   {admin}metrics",
        *([f"  takeover  {server.admin_socket}"] if server.admin_socket else []),
        f"  keys      {_keys(contract)}",
        f"  ledger    {server.ledger_folder or 'none; --ledger FOLDER keeps a record of every request'}",
        f"  model     {name}",
        f"  engine    {info.engine}, kernels {info.kernels}, {info.weights} weights, {threads}",
        *[f"            {note}" for note in info.notes],
        f"  loop      {loop}",
        f"  slots     {info.slots} of {info.slot_tokens} tokens",
        f"  stall     {server.worst_stall_ms} ms at most between two tokens (a step with another's chunk)",
        f"  waiting   nobody, but for at most {accept_queue()} connections that the kernel has not handed over yet",
    ]
    if connections < contract.limits.connections:
        lines.append(f"  limit     {connections} connections: the system allows no more open files (ulimit -n)")
    key = ' -H "authorization: Bearer $KEY"' if contract.tenants.key_set else ""
    lines += [
        "",
        "Try it:",
        f"  curl -N {address}/v1/chat/completions{key} -H 'content-type: application/json' -d '{body}'",
        "",
    ]
    return "\n".join(lines)


def _keys(contract: Contract) -> str:
    if contract.tenants.key_set:
        return f"every request needs one ({contract.tenants.key_set}); `zerolayer keys issue` makes them"
    if contract.open_to_others:
        return "none are asked for, and other machines may come: --key-set asks for them"
    return "none are asked for, so only this machine is served; --key-set asks for them"


def process_age_s() -> float:
    """Seconds since the kernel started this process (proc(5): field 22 of stat, in ticks since boot)."""
    fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started_s)
