"""The arguments of ``zerolayer keys``; what they do is imported when it is needed."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Final

from zerolayer.argument_types import Commands, number, whole

_days = number(0, 36_500)
_UINT32: Final = (1 << 32) - 1
_LIMITS: Final = (
    ("--requests-per-minute", _UINT32, "requests in a minute"),
    ("--tokens-per-minute", _UINT32, "tokens of prompt and answer in a minute"),
    ("--concurrent", (1 << 16) - 1, "requests at once"),
    ("--compute-us-per-day", 10**15, "microseconds of compute (wall time x cores) in a UTC day"),
)


def add_keys(commands: Commands) -> None:
    """The command and its own commands."""
    text = "Make and revoke the signed keys that clients show. Servers verify them without any database."
    keys = commands.add_parser("keys", help="make and revoke clients' keys", description=text, allow_abbrev=False)
    below = keys.add_subparsers(title="commands", metavar="COMMAND", required=True)
    new = _add(below, "new", "make a signing key and its key set")
    new.add_argument("folder", metavar="FOLDER", nargs="?", default="keys", help="where to; default keys")
    _add_issue(_add(below, "issue", "make a key for a client and print it"))
    revoke = _add(below, "revoke", "void keys; servers know within a second")
    revoke.add_argument("key", metavar="KEY", nargs="*", help="a key's id, or a key; - reads it from stdin")
    revoke.add_argument("--tenant", action="append", default=[], help="all keys of this tenant that exist by now")
    revoke.add_argument("--renew", action="store_true", help="sign the list anew as it is, so that it stays young")
    rotate = _add(below, "rotate", "make a new signing key; the last one counts for a while yet")
    rotate.add_argument("--overlap-days", metavar="DAYS", type=_days, default=30.0, help="for how long; default 30")
    show = _add(below, "show", "print the key set, or what a key says")
    show.add_argument("key", metavar="KEY", nargs="?", help="a key; - reads it from stdin")
    for command in (issue for name, issue in below.choices.items() if name != "new"):
        command.add_argument("--folder", metavar="FOLDER", default="keys", help="of the signing key; default keys")


def _add(below: Commands, name: str, text: str) -> argparse.ArgumentParser:
    command = below.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
    command.add_argument("--json", action="store_true", help="print JSON instead")
    command.set_defaults(run=_runner(name))
    return command


def _add_issue(issue: argparse.ArgumentParser) -> None:
    issue.add_argument("--tenant", metavar="NAME", required=True, help="whose key it is; 1 to 24 of a-z 0-9 . _ -")
    issue.add_argument("--days", metavar="DAYS", type=_days, default=90.0, help="valid for; 0 = for ever; default 90")
    for flag, most, text in _LIMITS:
        issue.add_argument(flag, metavar="N", type=whole(0, most), default=0, help=f"{text}; 0 = no limit (default)")
    issue.add_argument(
        "--model", metavar="NAME", action="append", default=[], help="a model it may use; may be repeated; default all"
    )
    issue.add_argument("--group", metavar="NAME", default="", help="shares cached prompts with; default its tenant")
    issue.add_argument(
        "--tier", choices=("flex", "default", "priority"), default="default", help="highest service_tier"
    )
    issue.add_argument("--node", action="store_true", help="for a server of the fleet, which may ask for leases")


def _runner(name: str) -> Callable[[argparse.Namespace], int]:
    def run(options: argparse.Namespace) -> int:
        from zerolayer.guard.auth import keys_command

        return int(getattr(keys_command, name)(options))

    return run
