"""Servers with one disease each, in one process of their own, for as long as a file of tests runs."""

from __future__ import annotations

import functools
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from check.disease_server import Server, handle
from check.scripted import Machine
from zerolayer.check import figures
from zerolayer.check import target as targets
from zerolayer.check.live_view import Silent
from zerolayer.check.load_client import LoadClient
from zerolayer.check.measure import Measurement
from zerolayer.check.network import Network, SystemNetwork
from zerolayer.check.run_file import Run, Settings
from zerolayer.check.session import Session
from zerolayer.check.trace import Arrival

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
        "lateness",
        "counting",
        "gateway",
    ),
)
LATE_MS = 10.0  # half of what the servers take
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


@pytest.fixture(scope="session", params=["scripted", pytest.param("sockets", marks=pytest.mark.judge)])
def measured(request: pytest.FixtureRequest) -> Callable[..., Run]:
    """Measure a server with one disease: on a machine of scripted time; for judges also over TCP, as time goes by."""
    if request.param == "scripted":
        return measure_scripted
    url = request.getfixturevalue("url")

    def measure(disease: str, settings: Settings = QUICK, api: str = "http", rest: float = 0.4, tries: int = 3) -> Run:
        """A run in which a busy machine stopped client or server is made again, twice, and then says nothing."""
        late_ms, often = LATE_MS, msgspec.structs.replace(settings, repeats=max(5, settings.repeats))
        for _ in range(tries):
            stood_still_ms(url("lateness"))
            network, clock = SystemNetwork(), time.monotonic_ns
            run = once(url(disease), api, often, network, clock, lambda seconds: time.sleep(rest * seconds))
            late_ms = max(figures.lag(run).worst_ms, stood_still_ms(url("lateness")))
            if late_ms < LATE_MS:
                return run
        pytest.skip(f"the machine stood still for {late_ms:.0f} ms; needs an idle core")

    return measure


def stood_still_ms(address: str) -> float:
    """How late the servers' process was at most, since this was asked last."""
    with urllib.request.urlopen(address, timeout=10) as reply:
        return float(reply.headers["x-late-ms"])


def measure_scripted(
    disease: str,
    settings: Settings = QUICK,
    api: str = "http",
    rest: float = 1.0,
    tries: int = 1,
    arrivals: list[Arrival] | None = None,
) -> Run:
    """The same, where nothing but the server decides how long anything takes."""
    machine = Machine(lambda: functools.partial(handle, Server(disease)))
    try:
        return once("http://scripted", api, settings, machine, machine.clock, machine.sleep, arrivals)
    finally:
        machine.close()


def once(
    address: str,
    api: str,
    settings: Settings,
    network: Network,
    clock: Callable[[], int],
    sleep: Callable[[float], None],
    arrivals: list[Arrival] | None = None,
) -> Run:
    target = targets.parse(address + ("/" if api == "http" else ""), api, "", ())
    client = LoadClient(target.endpoint, 10, clock, network)
    try:
        target = targets.discover(client, target, ask_api=api != "http")
        return Measurement(Session(target, client, settings, Silent(), sleep)).measure(arrivals)
    finally:
        client.close()
