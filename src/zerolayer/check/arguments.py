"""Arguments of the commands that look at a service from outside. What a command needs is imported when it runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from zerolayer.argument_types import Commands, listed, number, port, whole

_count = whole(1, 1_000_000)
_positive = number(0.001, 1e6)
_seconds = number(0.0, 1e6)
_share = number(0.0, 1.0)
_counts = listed(_count)
_rates = listed(_positive)

_ADMIN = "http://127.0.0.1:8001"
_LATENCIES = ("first_token", "between_tokens", "end_to_end")  # those of ``check.screen``
_FORMS = ("http1", "http2", "json", "sse", "request", "reply", "replies", "error")  # those of ``check.wire_dump``


def add_checks(commands: Commands) -> None:
    """Add ``wire``, ``pulse``, ``compare``, ``simulate``, ``doctor``, ``watch`` and ``sla``."""
    _add_wire(commands)
    _add_pulse(commands)
    _add_compare(commands)
    _add_simulate(commands)
    _add_doctor(commands)
    _add_watch(commands)
    _add_sla(commands)


def _add_wire(commands: Commands) -> None:
    text = "Print a captured request or reply range by range: offset, size, tag, type, value, and what is wrong where."
    wire = commands.add_parser("wire", help="explain captured bytes", description=text, allow_abbrev=False)
    wire.add_argument(
        "file", metavar="FILE", type=Path, help="the bytes of one direction of a connection, or of a body"
    )
    wire.add_argument(
        "--as",
        dest="form",
        metavar="FORM",
        choices=_FORMS,
        help=f"{', '.join(_FORMS[:-1])} or {_FORMS[-1]}, the last four of the schema; default: guessed",
    )
    wire.add_argument("--json", action="store_true", help="print JSON instead")
    wire.set_defaults(run=_wire)


def _add_pulse(commands: Commands) -> None:
    text = "Measure a service from outside: lone requests, pulses, load steps, retries. Names what it hides."
    pulse = commands.add_parser("pulse", help="show a service's hidden queue", description=text, allow_abbrev=False)
    pulse.add_argument("url", metavar="URL", nargs="?", help="OpenAI- or Anthropic-compatible, or plain HTTP")
    pulse.add_argument("--from", dest="reread", metavar="FILE", help="read a saved run again instead of measuring")
    pulse.add_argument("--pcap", metavar="FILE", help="read a packet capture instead of measuring")
    pulse.add_argument("--port", type=port, help="the service's port in the capture")
    pulse.add_argument("--api", choices=("auto", "openai", "anthropic", "http"), default="auto", help="default: ask it")
    pulse.add_argument("--model", metavar="NAME", default="", help="default: the first that the service lists")
    pulse.add_argument("--key-env", metavar="VARIABLE", help="environment variable that holds the service's key")
    pulse.add_argument("--header", metavar="'NAME: VALUE'", action="append", default=[], help="may be repeated")
    pulse.add_argument("--method", metavar="NAME", default="GET", help="of plain HTTP; default GET")
    pulse.add_argument("--body", metavar="TEXT|@FILE", help="JSON body of plain HTTP")
    for name, placeholder, kind, note in _PULSE_NUMBERS:
        pulse.add_argument(f"--{name}", metavar=placeholder, type=kind, help=note)
    pulse.add_argument("--http2", action="store_true", help="speak HTTP/2 (over TLS, or with prior knowledge)")
    pulse.add_argument("--step-rates", metavar="R,...", type=_rates, help="rates of the steps, requests per second")
    pulse.add_argument(
        "--stages",
        metavar="R[-R]:S,...",
        type=_stages,
        help="in place of steps: a rate, or from one to another, for S s",
    )
    pulse.add_argument("--users", metavar="N", type=_count, help="in place of steps: a closed loop of N users")
    pulse.add_argument("--think-ms", metavar="MS", type=_positive, help="a user's mean pause; default none")
    pulse.add_argument("--trace", metavar="FILE", help="replay an Azure or Mooncake trace in place of the steps")
    pulse.add_argument("--trace-speed", metavar="X", type=_positive, default=1.0, help="replay X times as fast")
    pulse.add_argument("--trace-limit", metavar="N", type=_count, help="replay the first N requests")
    pulse.add_argument("--no-aborts", action="store_true", help="do not break off streams")
    pulse.add_argument("--slo", metavar="NAME=MS,...", default="", help="limits of p50, p99, ttft_p50, ttft_p99")
    pulse.add_argument("--save", metavar="FILE", help="write all that was seen, for `compare` and --from")
    pulse.add_argument("--html", metavar="FILE", help="write a report with pictures, one file")
    pulse.add_argument("--json", action="store_true", help="print JSON instead")
    pulse.add_argument("--quiet", action="store_true", help="show no progress")
    pulse.set_defaults(run=_pulse)


def _add_compare(commands: Commands) -> None:
    text = "Compare two saved runs: exit code 0 if the second is not worse, 4 if it is, 20 if nothing can be said."
    compare = commands.add_parser("compare", help="compare two pulses", description=text, allow_abbrev=False)
    compare.add_argument("first", metavar="A.json", help="a run that `zerolayer pulse --save` wrote")
    compare.add_argument("second", metavar="B.json", help="a later one of the same service")
    compare.add_argument("--tolerance", metavar="X", type=_share, default=0.05, help="accepted worsening; default 0.05")
    compare.add_argument("--json", action="store_true", help="print JSON instead")
    compare.set_defaults(run=_compare)


def _add_simulate(commands: Commands) -> None:
    text = "Plan a fleet: how many nodes of which kind serve a trace of requests in time, and what that costs."
    fleet = commands.add_parser("simulate", help="plan a fleet", description=text, allow_abbrev=False)
    fleet.add_argument("--trace", metavar="FILE", help="arrivals in Azure's or Mooncake's format")
    fleet.add_argument("--cost", metavar="FILE", action="append", default=[], help="cost table of a kind of node, TOML")
    fleet.add_argument("--measure", metavar="URL", help="print the cost table of a running server, and end")
    fleet.add_argument("--speed", metavar="X,...", type=_rates, default=(1.0,), help="arrivals X times as fast")
    fleet.add_argument("--limit", metavar="N", type=_count, help="only the first N requests")
    fleet.add_argument("--nodes", metavar="N,...", type=_counts, default=(), help="numbers of nodes to try")
    fleet.add_argument("--slots", metavar="N,...", type=_counts, default=(), help="default: the cost table's")
    fleet.add_argument(
        "--find", choices=("nodes",), help="find the fewest that reach the target; default without --nodes"
    )
    fleet.add_argument("--target", metavar="X", type=_share, default=0.99, help="share served in time; default 0.99")
    fleet.add_argument("--deadline-ms", metavar="MS", type=_positive, help="of each request; default: the contract's")
    fleet.add_argument("--first-token-ms", metavar="MS", type=_positive, help="default: the contract's")
    fleet.add_argument("--senders", metavar="N", type=_count, default=0, help="clients; default: one a request")
    fleet.add_argument("--retries", metavar="N", type=int, choices=range(10), default=2, help="of a client; default 2")
    fleet.add_argument("--html", metavar="FILE", help="write the table and a plot, one file")
    fleet.add_argument("--json", action="store_true", help="print JSON instead")
    fleet.set_defaults(run=_simulate)


def _add_doctor(commands: Commands) -> None:
    text = "Say what this machine will do to latency: check, value, limit, remedy. Never needs root."
    doctor = commands.add_parser("doctor", help="examine this machine", description=text, allow_abbrev=False)
    doctor.add_argument("--json", action="store_true", help="print JSON instead")
    doctor.set_defaults(run=_doctor)


def _add_watch(commands: Commands) -> None:
    text = "Show a running server's last minute and its slots, as they move. The same for a browser: the admin address."
    watch = commands.add_parser("watch", help="watch a running server", description=text, allow_abbrev=False)
    watch.add_argument("url", metavar="URL", nargs="?", default=_ADMIN, help=f"its admin address; default {_ADMIN}")
    watch.add_argument("--once", action="store_true", help="print one picture and end")
    watch.add_argument(
        "--latency", choices=_LATENCIES, default=_LATENCIES[0], help="of the heat map; default first_token"
    )
    watch.add_argument("--json", action="store_true", help="print the events as lines of JSON instead")
    watch.set_defaults(run=_watch)


def _add_sla(commands: Commands) -> None:
    text = "Write the service's SLA page from its contract and from what a running server measured."
    sla = commands.add_parser("sla", help="write the service's SLA page", description=text, allow_abbrev=False)
    sla.add_argument("url", metavar="URL", nargs="?", default=_ADMIN, help=f"its admin address; default {_ADMIN}")
    sla.add_argument("--contract", metavar="FILE", help="contract file; default contract.toml if it exists")
    form = sla.add_mutually_exclusive_group()
    form.add_argument("--html", action="store_true", help="write HTML in place of Markdown")
    form.add_argument("--json", action="store_true", help="write JSON in place of Markdown")
    sla.set_defaults(run=_sla)


def _stages(text: str) -> tuple[tuple[float, float, float], ...]:
    """``0-50:10,50:30``: (rate at first, rate at last, seconds) of each stage."""
    stages = []
    for part in text.split(","):
        rates, _, seconds = part.partition(":")
        first, _, last = rates.partition("-")
        stages.append((_seconds(first), _seconds(last or first), _positive(seconds)))
    return tuple(stages)


# Numbers of a pulse, each a field of `Settings`, where the defaults stand: (name, placeholder, type, help).
_PULSE_NUMBERS = (
    (
        "budget-s",
        "S",
        _seconds,
        "how long it may take; numbers that are not given shrink to fit; default 60, 0 = no limit",
    ),
    ("probes", "N", _count, "lone requests; default at most 200"),
    ("largest-pulse", "K", _count, "requests of the largest pulse; default at most 64"),
    ("repeats", "N", _count, "pulses of each size; default at most 10"),
    ("step-seconds", "S", _positive, "length of a load step; default at most 10"),
    ("max-rate", "R", _positive, "most requests per second in a step; default 200"),
    ("retries", "N", _count, "retries at the promised time; default at most 60"),
    ("output-tokens", "N", _count, "tokens of each answer; default 12"),
    ("prompt-words", "N", _count, "words added to the prompt"),
    ("timeout-s", "S", _positive, "longest wait for a reply; default 60"),
    ("max-lag-ms", "MS", _positive, "client lateness that forbids a verdict; default 1, or a tenth of S0 if larger"),
    ("seed", "N", _count, "of rests and arrivals; default 1"),
)


def _wire(options: argparse.Namespace) -> int:
    from zerolayer.check.wire_command import run

    return run(options.file, options.form, json=options.json)


def _pulse(options: argparse.Namespace) -> int:
    from zerolayer.check.pulse_command import PulseOptions, pulse
    from zerolayer.check.run_file import Settings, Stage

    names = [*(name.replace("-", "_") for name, *_ in _PULSE_NUMBERS), "step_rates", "users", "think_ms"]
    given = {name: value for name in names if (value := getattr(options, name)) is not None}
    numbers = {"budget_s": 60.0} | given
    return pulse(
        PulseOptions(
            url=options.url,
            settings=Settings(
                aborts=not options.no_aborts,
                stages=tuple(Stage(*each) for each in options.stages or ()),
                fixed=tuple(given),
                **numbers,
            ),
            http2=options.http2,
            reread=options.reread,
            pcap=options.pcap,
            port=options.port,
            api=options.api,
            model=options.model,
            headers=tuple(options.header),
            key_env=options.key_env,
            method=options.method,
            body=options.body,
            trace=options.trace,
            trace_speed=options.trace_speed,
            trace_limit=options.trace_limit,
            limits=options.slo,
            save=options.save,
            html=options.html,
            json=options.json,
            quiet=options.quiet,
        )
    )


def _simulate(options: argparse.Namespace) -> int:
    from zerolayer.check.simulate_command import SimulateOptions, run

    return run(
        SimulateOptions(
            costs=tuple(options.cost),
            trace=options.trace,
            speeds=options.speed,
            limit=options.limit,
            nodes=() if options.find else options.nodes,
            slots=options.slots,
            target=options.target,
            deadline_ms=options.deadline_ms,
            first_token_ms=options.first_token_ms,
            senders=options.senders,
            retries=options.retries,
            html=options.html,
            json=options.json,
            measure=options.measure,
        )
    )


def _compare(options: argparse.Namespace) -> int:
    from zerolayer.check.pulse_command import compare

    return compare(options.first, options.second, options.tolerance, json=options.json)


def _doctor(options: argparse.Namespace) -> int:
    from zerolayer.check.doctor_command import run

    return run(json=options.json)


def _watch(options: argparse.Namespace) -> int:
    from zerolayer.check.watch import watch

    return watch(options.url, once=options.once, latency=options.latency, json=options.json)


def _sla(options: argparse.Namespace) -> int:
    from zerolayer.check.sla_command import run

    form = "html" if options.html else "json" if options.json else "markdown"
    return run(options.url, options.contract, form)
