"""``zerolayer usage``: what a ledger tells, and whether its chain holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from zerolayer.errors import LedgerDamaged, LedgerError, UsageError
from zerolayer.guard.ledger.export import as_csv, as_json, cloud_event, price_table, table
from zerolayer.guard.ledger.ledger import newest_head
from zerolayer.guard.ledger.record import Match, Record
from zerolayer.guard.ledger.segment import Chain
from zerolayer.guard.ledger.usage import KEYS, Window, prices, rows

FORMATS = ("table", "csv", "json", "cloudevents")
DAMAGED = 3  # exit code


class UsageOptions(msgspec.Struct, frozen=True):
    """``price`` is what the machine costs an hour; ``anchor`` is ``SEQUENCE:HASH``, a head that was noted earlier."""

    folder: Path
    by: tuple[str, ...] = ("tenant", "model")
    form: str = "table"
    window: Window = Window()
    verify: bool = False
    price: float | None = None
    anchor: str = ""


def usage(options: UsageOptions) -> int:
    """Print the report; the exit code: 0, or 3 if the chain does not hold. Raises ``LedgerError``, ``UsageError``."""
    unknown = [name for name in options.by if name not in KEYS]
    if unknown:
        raise UsageError(f"--by {unknown[0]} is unknown; it takes some of {', '.join(KEYS)}, separated by commas.")
    if options.verify:
        return _verify(options)
    chain = Chain(options.folder)
    damage = None
    try:
        if options.form == "cloudevents":
            _events(options, chain)
        else:
            _report(options, chain)
    except LedgerDamaged as error:
        damage = error
    if damage is not None:
        print(f"zerolayer: {damage.message}. What is told is what stands before it.", file=sys.stderr)
        return DAMAGED
    return 0


def _records(chain: Chain, found: list[LedgerDamaged]) -> Iterator[Record | None]:
    """All records up to the first damage, which is put into ``found``."""
    try:
        for link in chain:
            yield link.record()
    except LedgerDamaged as error:
        found.append(error)


def _report(options: UsageOptions, chain: Chain) -> None:
    damage: list[LedgerDamaged] = []
    found = options.window.of(_records(chain, damage))
    records = [record for record in found if not isinstance(record, Match)]
    report = rows(records, options.by)
    bills = None
    if options.price is not None:
        bills = prices(records, options.price)
        if bills is None:
            raise UsageError(
                "No server's life is recorded in this window, so there are no hours to compare with. "
                "A server records a minute when it is over, and the last part when it stops."
            )
    if options.form == "csv":
        print(as_csv(options.by, report), end="")
    elif options.form == "json":
        print(as_json(options.by, report, bills).decode())
    elif bills is not None:
        print(price_table(bills), end="")
    elif report:
        print(table(options.by, report), end="")
    else:
        print("no request is recorded in this window", file=sys.stderr)
    if damage:
        raise damage[0]


def _events(options: UsageOptions, chain: Chain) -> None:
    head = newest_head(options.folder)
    if head is None:
        raise LedgerError(f"There is no ledger in {options.folder}. Give --ledger the folder that serve names.")
    damage: list[LedgerDamaged] = []
    for record in options.window.of(_records(chain, damage)):
        print(cloud_event(record, head).decode())
    if damage:
        raise damage[0]


def _verify(options: UsageOptions) -> int:
    chain = Chain(options.folder)
    number, _, digest = options.anchor.partition(":")
    seen = not options.anchor
    count = 0
    try:
        for link in chain:
            count += 1
            seen = seen or (str(link.sequence) == number and link.hash.hex() == digest.lower())
    except LedgerDamaged as error:
        print(f"zerolayer: the chain does not hold: {error.message}", file=sys.stderr)
        return DAMAGED
    if not seen:
        print("zerolayer: the noted record is not in this ledger, or has another hash", file=sys.stderr)
        return DAMAGED
    first, end = chain.first, chain.end
    if first is None or end is None:
        raise LedgerError(f"There is no whole segment in {options.folder}.")
    verdict = {
        "version": 1,
        "holds": True,
        "records": count,
        "segments": chain.segments,
        "first": first.sequence,
        "head": f"{end.sequence - 1}:{end.hash.hex()}",
        "being_written_bytes": chain.loose,
    }
    if options.form == "json":
        print(msgspec.json.encode(verdict).decode())
        return 0
    print(f"the chain holds, from record {first.sequence} to record {end.sequence - 1} (segments: {chain.segments})")
    if first.sequence > 1:
        print("older segments were removed: the chain begins with what the first one says of them")
    print(f"head  {verdict['head']}")
    print("Keep the head elsewhere; --verify --anchor HEAD proves later that nothing up to it was changed or cut off.")
    return 0
