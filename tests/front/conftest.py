"""Services for tests, closed when the test ends."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
import uvloop

sys.path.insert(0, str(Path(__file__).parent))

from echo_model import EchoEngine, LastMessage
from echo_service import Service
from key_folder import Keys

from zerolayer.front.site import ConnectionLimits
from zerolayer.model.watchdog import Watchdog


@pytest.fixture
def serve() -> Iterator[Callable[..., Service]]:
    """Start services; they are closed when the test ends."""
    started: list[Service] = []

    def start(
        *,
        slots: int = 4,
        slot_tokens: int = 512,
        chunk_tokens: int = 64,
        step_us: int = 200,
        limits: ConnectionLimits | None = None,
        sweep_s: float = 0.02,
        section: dict[str, object] | None = None,
        context: dict[str, object] | None = None,
        shows: type[LastMessage] = LastMessage,
        watchdog: Watchdog | None = None,
        sections: dict[str, dict[str, object]] | None = None,
        tenants: dict[str, object] | None = None,
        aliases: tuple[str, ...] = (),
        **flags: str,
    ) -> Service:
        engine = EchoEngine(slots=slots, slot_tokens=slot_tokens, chunk_tokens=chunk_tokens, step_us=step_us)
        shape = {"slots": str(slots), "slot-tokens": str(slot_tokens)}
        given = {**shape, **{key.replace("_", "-"): value for key, value in flags.items()}}
        told = {**({"tenants": tenants} if tenants else {}), **(sections or {})}
        service = Service(given, engine, limits, sweep_s, section or {}, context or {}, shows, watchdog, told, aliases)
        started.append(service)
        return service

    yield start
    for service in started:
        service.close()


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    """A folder of keys with a signing key of its own."""
    folder = Keys(tmp_path / "keys")
    folder.create(int(time.time()))
    return folder


@pytest.fixture
def run() -> Iterator[Callable[[Callable[[], Awaitable[None]]], None]]:
    """Runs a test on a loop, and holds it to leave no descriptor behind."""

    def on_loop(test: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await test()

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(main())

    async def nothing() -> None: ...

    on_loop(nothing)  # the first loop of a process keeps some
    before = _descriptors()
    yield on_loop
    assert _descriptors() == before


def _descriptors() -> int:
    gc.collect()
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
