"""Targets of the guard's parsers: keys, key sets, the ledger."""

from __future__ import annotations

import base64

from zerolayer.errors import StartupError
from zerolayer.guard.auth.key_format import MalformedKey, pack, parse, spell
from zerolayer.guard.auth.key_set import read_key_set, read_revocations
from zerolayer.guard.ledger.export import as_json, cloud_event, table
from zerolayer.guard.ledger.record import CONTENT_BYTES, Match, Note, read_head, read_record
from zerolayer.guard.ledger.record import Head as LedgerHead
from zerolayer.guard.ledger.usage import KEYS, prices, rows


def key(data: bytes) -> None:
    """A key is taken apart into what spells it again, or is malformed; so is whatever stands where a key may."""
    for text in (data, b"sk-zl1-" + base64.urlsafe_b64encode((data + bytes(156))[:156])):
        try:
            parsed = parse(text)
        except MalformedKey:
            continue
        assert pack(parsed.claims) == parsed.signed
        assert spell(parsed.signed, parsed.signature).encode() == text


def key_set(data: bytes) -> None:
    """Files that no root has signed are refused, whatever they are."""
    for read in (read_key_set, lambda file: read_revocations(file, bytes(32))):
        try:
            read(data)
        except StartupError:
            continue
        raise AssertionError("a file that nobody signed was believed")


def ledger(data: bytes) -> None:
    """Whatever a record says, whoever chained it: it is skipped, or reported on one line without control characters."""
    read_head(data)
    record = read_record(data[:CONTENT_BYTES].ljust(CONTENT_BYTES, b"\0"))
    if record is None or isinstance(record, Note):
        return
    event = cloud_event(record, LedgerHead(1, 1, 0))
    assert event.isascii() or event.decode()
    assert b"\n" not in event
    if isinstance(record, Match):
        return
    report = rows([record], list(KEYS))
    assert table(list(KEYS), report).replace("\n", "").isprintable()
    assert as_json(list(KEYS), report)
    prices([record], 1.0)
