"""Servers with one disease each, in one process of their own, for as long as a file of tests runs."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from zerolayer.check import figures
from zerolayer.check import target as targets
from zerolayer.check.live_view import Silent
from zerolayer.check.load_client import LoadClient
from zerolayer.check.measure import Measurement
from zerolayer.check.run_file import Run, Settings

sys.path.insert(0, str(Path(__file__).parent.parent / "guard" / "deadline"))  # the specification of a node on paper

DISEASES = (
    *("healthy", "fifo", "serial", "shaper", "tick", "sharing", "stall", "company", "bimodal"),
    *(
        "honest",
        "dishonest",
        "mute",
        "failing",
        "streaming",
        "buffered",
        "empty",
        "slots",
        "leak",
        "bucket",
        "anthropic",
        "remembering",
    ),
)
LATE_MS = 25.0
QUICK = Settings(
    probes=24,
    largest_pulse=16,
    repeats=2,
    gap_factor=0.1,
    step_shares=(),
    retries=10,
    aborts=False,
    max_lag_ms=1000,
    timer_probes=20,
)


@pytest.fixture(scope="session")
def ports() -> Iterator[dict[str, int]]:
    script = Path(__file__).parent / "disease_server.py"
    process = subprocess.Popen([sys.executable, str(script), *DISEASES], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield {disease: int(process.stdout.readline()) for disease in DISEASES}
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def url(ports: dict[str, int]) -> Callable[[str], str]:
    return lambda disease: f"http://127.0.0.1:{ports[disease]}"


@pytest.fixture(scope="session")
def measured(url: Callable[[str], str]) -> Callable[..., Run]:
    """Measure a server, with shorter rests. A run in which a busy machine stopped the client is made again, twice."""

    def measure(disease: str, settings: Settings = QUICK, api: str = "http", rest: float = 0.4, tries: int = 3) -> Run:
        runs = [once(disease, settings, api, rest)]
        while figures.lag(runs[-1]).worst_ms >= LATE_MS and len(runs) < tries:
            runs.append(once(disease, settings, api, rest))
        return min(runs, key=lambda run: figures.lag(run).worst_ms)

    def once(disease: str, settings: Settings, api: str, rest: float) -> Run:
        target = targets.parse(url(disease) + ("/" if api == "http" else ""), api, "", ())
        client = LoadClient(target.endpoint, 10)
        try:
            target = targets.discover(client, target, ask_api=api != "http")
            return Measurement(target, client, settings, Silent(), lambda s: time.sleep(rest * s)).measure()
        finally:
            client.close()

    return measure
