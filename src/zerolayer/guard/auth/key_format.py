"""The key itself: ``sk-zl1-`` and base64url of a fixed struct of 92 bytes and its Ed25519 signature (RFC 8032).

| bytes | what |
|------:|------|
| 1  | format version, 1 |
| 1  | flags: bits 0-1 highest tier, bit 2 a server of the fleet; others are 0 |
| 4  | id of the signing key |
| 24 | tenant, ASCII, padded with zero bytes |
| 16 | id of this key, random |
| 4, 4, 4 | issued, not before, expires (Unix seconds; 0 = never) |
| 4, 4, 2, 8 | requests/min, tokens/min, at once, compute microseconds/day (0 = no limit) |
| 4  | models, as a mask over the key set's list (0 = all) |
| 12 | sharing group, ASCII, padded with zero bytes; empty: the tenant's own |

156 bytes are 208 characters without padding, so that no bit is free: one key has one spelling.
"""

from __future__ import annotations

import binascii
import re
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Final

import msgspec

from zerolayer.guard.identity import KEY_ID_BYTES, Quota
from zerolayer.wire.schema import Tier

PREFIX: Final = b"sk-zl1-"
DOMAIN: Final = b"zerolayer key 1\0"
"""Stands before the struct in what is signed, so that no other signed thing can pass for a key."""
FOREVER: Final = 0
MODELS: Final = 32  # that a mask has room for
SECONDS: Final = (1 << 32) - 1  # the largest time and the largest limit

_LAYOUT: Final = Struct(">BBI24s16sIIIIIHQI12s")
_SIGNATURE_BYTES: Final = 64
_VERSION: Final = 1
_TIERS: Final = 0b11
_NODE: Final = 0b100
_TENANT_BYTES: Final = 24
_GROUP_BYTES: Final = 12
_NAME: Final = re.compile(rb"[a-z0-9][a-z0-9._-]*")
_URL_SAFE: Final = bytes.maketrans(b"-_+/", b"+/\xff\xff")  # what is not of this alphabet becomes what no alphabet has
KEY_CHARS: Final = len(PREFIX) + (_LAYOUT.size + _SIGNATURE_BYTES) * 4 // 3


class MalformedKey(ValueError):
    """These bytes are no key of this format. Says nothing about them, so that no log can."""


class Claims(msgspec.Struct, frozen=True):
    """What a key says. ``key_id`` has 16 bytes; ``models`` is a mask, 0 = all. Times in Unix seconds."""

    signer: int
    tenant: str
    key_id: bytes
    issued_s: int
    not_before_s: int
    expires_s: int = FOREVER
    quota: Quota = Quota()
    models: int = 0
    group: str = ""
    tier: Tier = Tier.PRIORITY
    is_node: bool = False


class SignedKey(msgspec.Struct, frozen=True):
    """A key taken apart. ``signed`` is what ``signature`` is over. Nothing is verified yet."""

    claims: Claims
    signed: bytes
    signature: bytes


def is_name(text: str) -> bool:
    """Whether this can be a tenant: 1 to 24 of ``a-z 0-9 . _ -``, a letter or digit first."""
    return len(text) <= _TENANT_BYTES and _NAME.fullmatch(text.encode("utf-8", "replace")) is not None


def is_group(text: str) -> bool:
    """Whether this can be a sharing group: as a tenant, up to 12 characters, or empty."""
    return text == "" or (len(text) <= _GROUP_BYTES and is_name(text))


def pack(claims: Claims) -> bytes:
    """What is to be signed. Raises ValueError for what the struct has no room for."""
    quota = claims.quota
    if not (is_name(claims.tenant) and is_group(claims.group) and len(claims.key_id) == KEY_ID_BYTES):
        raise ValueError("a tenant, group or key id does not fit the format")
    try:
        packed = _LAYOUT.pack(
            _VERSION,
            int(claims.tier) | (_NODE if claims.is_node else 0),
            claims.signer,
            claims.tenant.encode("ascii"),
            claims.key_id,
            claims.issued_s,
            claims.not_before_s,
            claims.expires_s,
            quota.requests_per_minute,
            quota.tokens_per_minute,
            quota.concurrent,
            quota.compute_us_per_day,
            claims.models,
            claims.group.encode("ascii"),
        )
    except StructError:
        raise ValueError("a number does not fit the format") from None
    return DOMAIN + packed


def spell(signed: bytes, signature: bytes) -> str:
    """The key as a client sends it; ``signed`` as ``pack`` gave it."""
    body = binascii.b2a_base64(signed[len(DOMAIN) :] + signature, newline=False)
    return (PREFIX + body.translate(bytes.maketrans(b"+/", b"-_"))).decode("ascii")


def parse(text: bytes) -> SignedKey:
    """Take a key apart. Costs the same few microseconds whatever is sent. Raises ``MalformedKey``."""
    if len(text) != KEY_CHARS or not text.startswith(PREFIX):
        raise MalformedKey
    try:
        data = binascii.a2b_base64(text[len(PREFIX) :].translate(_URL_SAFE), strict_mode=True)
    except binascii.Error:
        raise MalformedKey from None
    return SignedKey(_claims(data[: _LAYOUT.size]), DOMAIN + data[: _LAYOUT.size], data[_LAYOUT.size :])


def _claims(packed: bytes) -> Claims:
    version, flags, signer, tenant, key_id, issued, since, until, *limits, models, group = _LAYOUT.unpack(packed)
    tenant, group = tenant.rstrip(b"\0"), group.rstrip(b"\0")
    tier = flags & _TIERS
    named = _NAME.fullmatch(tenant) is not None and (group == b"" or _NAME.fullmatch(group) is not None)
    if version != _VERSION or flags & ~(_TIERS | _NODE) or tier > Tier.PRIORITY or not named:
        raise MalformedKey
    return Claims(
        signer,
        tenant.decode("ascii"),
        key_id,
        issued,
        since,
        until,
        Quota(*limits),
        models,
        group.decode("ascii"),
        Tier(tier),
        bool(flags & _NODE),
    )
