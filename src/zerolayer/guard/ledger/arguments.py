"""The arguments of ``zerolayer usage``."""

from __future__ import annotations

import argparse
import os
from datetime import date
from pathlib import Path

from zerolayer.argument_types import Commands, number


def add_usage(commands: Commands) -> None:
    """Add the command."""
    text = "Report what was used, from the ledger that `zerolayer serve` writes; it may be running meanwhile."
    usage = commands.add_parser("usage", help="report what was used", description=text, allow_abbrev=False)
    where = usage.add_mutually_exclusive_group()
    where.add_argument("--ledger", metavar="FOLDER", type=Path, help="the ledger; default: the contract's, by port")
    where.add_argument("--port", metavar="PORT", help="port of the server whose ledger it is; default 8000")
    usage.add_argument("--contract", metavar="FILE", help="contract file; default contract.toml if it exists")
    usage.add_argument(
        "--by", metavar="KEYS", default="tenant,model", help="rows by some of tenant, key, model, day (tenant,model)"
    )
    usage.add_argument("--since", metavar="DAY", type=_day, help="first day, UTC, as in 2026-11-29")
    usage.add_argument("--until", metavar="DAY", type=_day, help="last day, UTC")
    usage.add_argument("--tenant", metavar="NAME", help="only this tenant")
    form = usage.add_mutually_exclusive_group()
    form.add_argument(
        "--format", choices=("table", "csv", "json", "cloudevents"), default="table", help="cloudevents: every record"
    )
    form.add_argument("--json", dest="format", action="store_const", const="json", help="the same as --format json")
    usage.add_argument(
        "--price",
        metavar="PER_HOUR",
        type=number(0.001, 1e6),
        help="what the machine costs an hour: compare it with microseconds",
    )
    usage.add_argument("--verify", action="store_true", help="check the chain instead; exit code 3 if it is broken")
    usage.add_argument("--anchor", metavar="HEAD", default="", help="with --verify: a head that was noted earlier")
    usage.set_defaults(run=_usage)


def _usage(options: argparse.Namespace) -> int:
    from zerolayer.guard.ledger.usage import Window
    from zerolayer.guard.ledger.usage_command import UsageOptions, usage

    return usage(
        UsageOptions(
            options.ledger or _folder(options),
            tuple(part.strip() for part in options.by.split(",") if part.strip()),
            options.format,
            Window(options.since, options.until, options.tenant),
            verify=options.verify or bool(options.anchor),
            price=options.price,
            anchor=options.anchor,
        )
    )


def _folder(options: argparse.Namespace) -> Path:
    """Where a server with this contract, environment and port writes."""
    from zerolayer.contract import find_file, load
    from zerolayer.errors import UsageError
    from zerolayer.guard.ledger.place import ledger_folder

    flags = {} if options.port is None else {"port": options.port}
    effective = load(find_file(options.contract, os.environ, Path()), os.environ, flags)
    folder = ledger_folder(effective.contract, os.environ)
    if folder is None:
        raise UsageError("By its contract this server keeps no ledger; name one with --ledger FOLDER.")
    return folder


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError("a day is written as 2026-11-29") from None
