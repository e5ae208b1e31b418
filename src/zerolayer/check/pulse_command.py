"""``zerolayer pulse`` and ``zerolayer compare``: from arguments to a printed report and an exit code."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zerolayer.check import compare as comparing
from zerolayer.check import target as targets
from zerolayer.check.capture import read_capture
from zerolayer.check.errors import TargetError
from zerolayer.check.files import check_writable, read_bytes, write_bytes
from zerolayer.check.html_report import html
from zerolayer.check.json_report import to_json
from zerolayer.check.live_view import Lines, LiveView, Silent, Watcher
from zerolayer.check.load_client import LoadClient
from zerolayer.check.measure import Measurement
from zerolayer.check.pace import MachinePace
from zerolayer.check.report import LIMIT_NAMES, Limit, analyse
from zerolayer.check.run_file import Run, Settings, read, write
from zerolayer.check.session import Session
from zerolayer.check.text_report import text
from zerolayer.check.trace import Arrival, read_trace
from zerolayer.errors import UsageError


@dataclass(frozen=True)
class PulseOptions:
    """What the pulse command was asked: one of ``url``, ``reread`` and ``pcap``, and how to tell about it."""

    url: str | None
    settings: Settings
    reread: str | None = None
    pcap: str | None = None
    port: int | None = None  # of the service in the capture
    api: str = "auto"
    model: str = ""
    headers: tuple[str, ...] = ()
    key_env: str | None = None
    method: str = "GET"
    body: str | None = None
    http2: bool = False
    trace: str | None = None
    trace_speed: float = 1.0
    trace_limit: int | None = None
    limits: str = ""
    save: str | None = None
    html: str | None = None
    json: bool = False
    quiet: bool = False  # shows no progress


def pulse(options: PulseOptions) -> int:
    """Measure, or read again; print; the exit code of the verdict. Raises ``CheckError``."""
    limits = parse_limits(options.limits)
    if sum(part is not None for part in (options.url, options.reread, options.pcap)) != 1:
        raise UsageError("Name one thing to look at: a URL, --from FILE, or --pcap FILE.")
    if options.reread is not None:
        run = read(Path(options.reread))
    elif options.pcap is not None:
        run = read_capture(Path(options.pcap), options.port)
    else:
        for file in filter(None, (options.save, options.html)):
            check_writable(Path(file))  # before a minute is spent on what could not be kept
        run = _measure(options)
    report = analyse(run, limits)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    print(to_json(run, report) if options.json else text(run, report))
    if options.save is not None:
        write(run, Path(options.save))
    if options.html is not None:
        write_bytes(Path(options.html), html(run, report).encode())
    return report.exit_code


def parse_limits(text: str) -> list[Limit]:
    """``p99=500,ttft_p99=200`` in ms. Raises ``UsageError``."""
    limits = []
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = -1.0
        if name not in LIMIT_NAMES or not 0 < limit < float("inf"):
            raise UsageError(f"--slo takes NAME=MS with a name of {', '.join(LIMIT_NAMES)}, as in p99=500.")
        limits.append(Limit(name, limit))
    return limits


def _measure(options: PulseOptions) -> Run:
    arrivals: list[Arrival] | None = None
    if options.trace is not None:
        arrivals = read_trace(Path(options.trace), speed=options.trace_speed, limit=options.trace_limit)
    body = _body(options.body)
    headers = tuple(_header(line) for line in options.headers)
    target = targets.parse(
        options.url or "", options.api, options.model, headers, options.method, body, http2=options.http2
    )
    if options.key_env is not None:
        target = targets.with_key(target, _key(options.key_env))
    client = LoadClient(target.endpoint, options.settings.timeout_s)
    view = _watcher(client.clock, quiet=options.quiet)
    view.note(f"Measuring {target.endpoint}: lone requests, pulses, a load, and what becomes of refusals.")
    try:
        target = targets.discover(client, target, ask_api=options.api != "http" and options.body is None)
        session = Session(target, client, options.settings, view, time.sleep, MachinePace())
        return Measurement(session).measure(arrivals)
    except KeyboardInterrupt:
        raise TargetError("Interrupted before the unloaded time was known.") from None
    finally:
        client.close()
        if isinstance(view, LiveView):
            view.close()


def _watcher(clock_ns: Callable[[], int], *, quiet: bool) -> Watcher:
    """Progress goes to standard error: drawn where that is a terminal, else in lines."""
    if quiet:
        return Silent()
    return LiveView(sys.stderr, clock_ns) if sys.stderr.isatty() else Lines(sys.stderr, clock_ns)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _key(variable: str) -> str:
    key = os.environ.get(variable)
    if not key:
        raise UsageError(f"The environment has no {variable}, which --key-env names.")
    return key


def _body(text: str | None) -> bytes:
    """A request body: the text itself, or of the file after ``@``."""
    if text is None or not text.startswith("@"):
        return (text or "").encode()
    return read_bytes(Path(text[1:]))


def compare(first: str, second: str, tolerance: float, *, json: bool) -> int:
    """Read two runs, print how they differ; 0 not worse, 4 worse, 20 not comparable. Raises ``InputFileError``."""
    comparison = comparing.compare(read(Path(first)), read(Path(second)), tolerance)
    print(comparing.to_json(comparison) if json else comparing.text(comparison))
    return comparison.exit_code
