"""``zerolayer keys new|issue|revoke|rotate|show``: the operator's side of keys. Only ``issue`` ever prints a key."""

from __future__ import annotations

import argparse
import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.errors import UsageError
from zerolayer.guard.auth.key_files import KEY_SET, SIGNING
from zerolayer.guard.auth.key_format import (
    FOREVER,
    Claims,
    MalformedKey,
    SignedKey,
    is_group,
    is_name,
    parse,
)
from zerolayer.guard.auth.key_set import SigningKey
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.identity import Quota
from zerolayer.wire.schema import Tier

_KEY_ID: Final = re.compile(r"[0-9a-f]{32}")
_DAY_S: Final = 86_400


def new(options: argparse.Namespace) -> int:
    """``keys new [FOLDER]``."""
    folder = Path(options.folder)
    found = KeyFolder(folder).create(_now())
    if options.json:
        return _print_json(
            {"folder": str(folder), "root": found.key_set.root, "signer": _hex(found.key_set.keys[0].id)}
        )
    where = "" if options.folder == "keys" else f" --folder {folder}"
    print(f"{folder / SIGNING} signs keys: keep it secret, and off the servers where you can.")
    print(f"{folder / KEY_SET} and the list beside it are public; servers need these two.\n\nNext:")
    print(f"  KEY=$(zerolayer keys issue --tenant me{where})")
    print(f"  zerolayer serve --key-set {folder / KEY_SET}")
    print('  curl http://127.0.0.1:8000/v1/models -H "authorization: Bearer $KEY"')
    return 0


def issue(options: argparse.Namespace) -> int:
    """``keys issue --tenant NAME``: the key on stdout, and what it says on stderr."""
    if not is_name(options.tenant):
        raise UsageError("a tenant is 1 to 24 of a-z 0-9 . _ - with a letter or digit first")
    if not is_group(options.group):
        raise UsageError("a sharing group is up to 12 of a-z 0-9 . _ - with a letter or digit first")
    now = _now()
    expires = FOREVER if options.days == 0 else now + round(options.days * _DAY_S)
    quota = Quota(
        options.requests_per_minute, options.tokens_per_minute, options.concurrent, options.compute_us_per_day
    )
    wish = Wish(
        options.tenant, expires, quota, options.model, options.group, Tier[options.tier.upper()], is_node=options.node
    )
    key, claims = KeyFolder(Path(options.folder)).issue(wish, now)
    if options.json:
        return _print_json({"key": key, **_told(claims)})
    print(f"id {claims.key_id.hex()}, {_span(claims)}; this is the only time the key is shown", file=sys.stderr)
    print(key)
    return 0


def revoke(options: argparse.Namespace) -> int:
    """``keys revoke KEY_ID|KEY|-`` or ``--tenant NAME``: servers that watch the folder know within a second."""
    named = [_key_id(text) for text in options.key]
    if not (named or options.tenant or options.renew):
        raise UsageError("name a key or its id, or all keys of a tenant by --tenant NAME; --renew signs the list anew")
    now = _now()
    for tenant in options.tenant:
        if not is_name(tenant):
            raise UsageError("a tenant is 1 to 24 of a-z 0-9 . _ - with a letter or digit first")
    # A key that was issued in this very second is meant too.
    found = KeyFolder(Path(options.folder)).revoke(named, options.tenant, now + 1, now)
    if options.json:
        return _print_json({"serial": found.serial, "keys": len(found.keys), "tenants": len(found.tenants)})
    print(f"revoked; on the list now: keys {len(found.keys)}, tenants {len(found.tenants)} (serial {found.serial})")
    return 0


def rotate(options: argparse.Namespace) -> int:
    """``keys rotate``: a new signing key; keys that the last one signed count for ``--overlap-days`` more."""
    key_set = KeyFolder(Path(options.folder)).rotate(round(options.overlap_days * _DAY_S), _now())
    if options.json:
        return _print_json({"epoch": key_set.epoch, "signers": [_signer(key) for key in key_set.keys]})
    for key in key_set.keys:
        print(f"signing key {_hex(key.id)}, {_until(key.not_after_s)}")
    return 0


def show(options: argparse.Namespace) -> int:
    """``keys show [KEY|-]``: the folder's key set, or what a key says (its signature is not looked at)."""
    if options.key:
        claims = _parsed(options.key).claims
        return _print_json(_told(claims)) if options.json else _print_claims(claims)
    found = KeyFolder(Path(options.folder)).documents()
    key_set, revocations = found.key_set, found.revocations
    if options.json:
        told = {"epoch": key_set.epoch, "root": key_set.root, "models": key_set.models}
        signers = [_signer(key) for key in key_set.keys]
        return _print_json({**told, "signers": signers, "revoked": revocations.keys, "tenants": revocations.tenants})
    print(f"root      {msgspec.json.encode(key_set.root).decode()[1:-1]}, epoch {key_set.epoch}")
    for key in key_set.keys:
        print(f"signer    {_hex(key.id)}, {_until(key.not_after_s)}")
    for name in key_set.models:
        print(f"model     {name}")
    for key_id in revocations.keys:
        print(f"revoked   key {key_id}")
    for tenant, before in revocations.tenants.items():
        print(f"revoked   keys of {tenant} issued before {_date(before)}")
    return 0


def _print_claims(claims: Claims) -> int:
    for name, value in _told(claims).items():
        print(f"{name:<20}{value}")
    return 0


def _told(claims: Claims) -> dict[str, object]:
    """What a key says, for people and for JSON."""
    quota = claims.quota
    return {
        "id": claims.key_id.hex(),
        "tenant": claims.tenant,
        "signer": _hex(claims.signer),
        "issued": _date(claims.issued_s),
        "expires": _date(claims.expires_s) if claims.expires_s else "never",
        "requests_per_minute": quota.requests_per_minute,
        "tokens_per_minute": quota.tokens_per_minute,
        "concurrent": quota.concurrent,
        "compute_us_per_day": quota.compute_us_per_day,
        "models": claims.models,
        "group": claims.group,
        "tier": claims.tier.name.lower(),
        "node": claims.is_node,
    }


def _key_id(text: str) -> str:
    return text if _KEY_ID.fullmatch(text) else _parsed(text).claims.key_id.hex()


def _parsed(text: str) -> SignedKey:
    given = sys.stdin.readline().strip() if text == "-" else text
    try:
        return parse(given.encode("utf-8", "replace"))
    except MalformedKey:
        raise UsageError("this is neither a key nor the 32 hexadecimal digits of a key's id") from None


def _signer(key: SigningKey) -> dict[str, object]:
    return {"id": _hex(key.id), "not_before_s": key.not_before_s, "not_after_s": key.not_after_s}


def _span(claims: Claims) -> str:
    return f"for tenant {claims.tenant}, {_until(claims.expires_s)}"


def _until(end_s: int) -> str:
    return f"until {_date(end_s)}" if end_s else "without an end"


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _hex(number: int) -> str:
    return f"{number:08x}"


def _now() -> int:
    return int(time.time())


def _print_json(told: dict[str, object]) -> int:
    print(msgspec.json.format(msgspec.json.encode({"version": 1, **told}), indent=2).decode())
    return 0
