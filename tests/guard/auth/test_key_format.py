"""A key has one spelling, says what it was made to say, and nothing else is a key."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerolayer.guard.auth.key_format import KEY_CHARS, Claims, MalformedKey, pack, parse, spell
from zerolayer.guard.identity import Quota
from zerolayer.wire.schema import Tier

UINT32 = st.integers(0, (1 << 32) - 1)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,23}", fullmatch=True)
CLAIMS = st.builds(
    Claims,
    signer=UINT32,
    tenant=NAMES,
    key_id=st.binary(min_size=16, max_size=16),
    issued_s=UINT32,
    not_before_s=UINT32,
    expires_s=UINT32,
    quota=st.builds(Quota, UINT32, UINT32, st.integers(0, 65_535), st.integers(0, (1 << 62) - 1)),
    models=UINT32,
    group=st.just("") | st.from_regex(r"[a-z0-9][a-z0-9._-]{0,11}", fullmatch=True),
    tier=st.sampled_from(Tier),
    is_node=st.booleans(),
)
SIGNATURES = st.binary(min_size=64, max_size=64)
PLAIN = Claims(1, "acme", bytes(16), 1, 1)


@given(CLAIMS, SIGNATURES)
def test_a_key_says_what_it_was_made_to_say(claims, signature):
    signed = pack(claims)
    text = spell(signed, signature).encode()
    parsed = parse(text)
    assert (parsed.claims, parsed.signed, parsed.signature) == (claims, signed, signature)
    assert len(text) == KEY_CHARS


@given(CLAIMS, SIGNATURES, st.integers(0, KEY_CHARS - 1), st.integers(0, 255))
def test_another_spelling_is_another_key_or_none(claims, signature, place, byte):
    text = spell(pack(claims), signature).encode()
    changed = text[:place] + bytes([byte]) + text[place + 1 :]
    try:
        parsed = parse(changed)
    except MalformedKey:
        return
    assert (changed == text) == ((parsed.signed, parsed.signature) == (pack(claims), signature))


@given(st.binary(max_size=300) | st.binary(min_size=208, max_size=208).map(lambda tail: b"sk-zl1-" + tail))
def test_whatever_is_no_key_is_malformed_and_nothing_else(data):
    try:
        parsed = parse(data)
    except MalformedKey:
        return
    assert spell(parsed.signed, parsed.signature).encode() == data


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"sk-zl1-",
        b"sk-zl1-" + b"=" * 208,
        b"sk-zl2-" + b"A" * 208,
        b"sk-zl1-" + b"+/" * 104,
        b"sk-zl1-" + b"A" * 209,
    ],
)
def test_strangers_bytes_are_refused(text):
    with pytest.raises(MalformedKey):
        parse(text)


@pytest.mark.parametrize("tenant", ["", "A", "_idle", "-a", "a b", "a" * 25, "ä", "a\0b"])
def test_a_name_that_no_tenant_can_have_is_not_packed(tenant):
    with pytest.raises(ValueError, match="does not fit"):
        pack(Claims(1, tenant, bytes(16), 1, 1))


@pytest.mark.parametrize("number", [-1, 1 << 32])
def test_a_number_that_the_struct_has_no_room_for_is_not_packed(number):
    with pytest.raises(ValueError, match="does not fit"):
        pack(Claims(1, "a", bytes(16), 1, 1, quota=Quota(requests_per_minute=number)))


def test_a_newer_version_and_unknown_flags_are_refused():
    signed = pack(PLAIN)
    at = len(signed) - 92
    for place, value in ((at, 2), (at + 1, 0b1000), (at + 1, 0b11)):
        changed = bytearray(signed)
        changed[place] = value
        with pytest.raises(MalformedKey):
            parse(spell(bytes(changed), bytes(64)).encode())


@given(CLAIMS, SIGNATURES)
def test_scanners_for_secrets_find_a_key(claims, signature):
    assert re.search(r"sk-[A-Za-z0-9_-]{20,}", spell(pack(claims), signature))
