"""Which keys are let in, when they no longer are, and what wrong ones can cost."""

from __future__ import annotations

import gc

import pytest

from zerolayer.errors import RateLimited, Unauthenticated, Unavailable
from zerolayer.guard.auth.authenticator import Authenticator
from zerolayer.guard.auth.signing import KeyFolder
from zerolayer.guard.auth.throttle import BURST, network
from zerolayer.guard.identity import Quota
from zerolayer.wire.schema import Tier


def wrong(key: bytes, number: int = 0) -> bytes:
    """The same claims with another signature."""
    tail = b"%04d" % number
    return key[: -len(tail)] + tail


def test_a_good_key_is_verified_once_and_then_known(keys):
    key = keys.issue(quota=Quota(7, 8, 9, 10), group="friends", tier=Tier.DEFAULT)
    first, second = keys.ask(key), keys.ask(key)
    assert first is second
    assert (first.tenant, first.group, first.tier, first.quota) == ("acme", "friends", Tier.DEFAULT, Quota(7, 8, 9, 10))
    assert (keys.keys.counts.verified, keys.keys.counts.hits) == (1, 1)


def test_a_key_is_found_by_its_digest_and_not_kept(keys):
    """Comparing digests tells nobody how much of a guess was right, and memory that leaks has no keys in it."""
    good = keys.issue()
    bad = wrong(good)
    keys.ask(good)
    with pytest.raises(Unauthenticated):
        keys.ask(bad)
    assert {len(name) for table in (keys.keys._known, keys.keys._refused) for name in table} == {32}
    referred = [thing for table in (keys.keys._known, keys.keys._refused) for thing in gc.get_referents(table)]
    assert [thing for thing in referred if good[8:40] in repr(thing).encode()] == []


def test_a_key_of_other_keys_is_refused_without_a_verification(keys, tmp_path):
    other = KeyFolder(tmp_path / "other")
    other.create(keys.now)
    foreign = type(keys).issue(type("Other", (), {"folder": other, "now": keys.now})())
    with pytest.raises(Unauthenticated):
        keys.ask(foreign)
    assert keys.keys.counts.verified == 0


def test_a_wrong_signature_is_refused_and_remembered(keys):
    key = wrong(keys.issue())
    for _ in range(1000):
        with pytest.raises(Unauthenticated):
            keys.ask(key)
    assert keys.keys.counts.verified == 1


def test_a_flood_of_different_wrong_keys_costs_a_bounded_number_of_verifications(keys):
    key = keys.issue()
    refusals = []
    for number in range(1000):
        with pytest.raises((Unauthenticated, RateLimited)) as caught:
            keys.ask(wrong(key, number))
        refusals.append(caught.type)
    assert keys.keys.counts.verified == BURST
    assert refusals[-1] is RateLimited


def test_a_flood_from_one_address_does_not_keep_others_out(keys):
    key = keys.issue()
    for number in range(100):
        with pytest.raises((Unauthenticated, RateLimited)):
            keys.ask(wrong(key, number))
    assert keys.ask(key, "192.0.2.2").tenant == "acme"


def test_an_address_is_believed_again_when_it_has_waited_as_long_as_it_was_told(keys):
    key = keys.issue()
    for number in range(BURST):
        with pytest.raises(Unauthenticated):
            keys.ask(wrong(key, number))
    with pytest.raises(RateLimited) as caught:
        keys.ask(key)
    keys.mono += caught.value.retry_after_ms * 1_000_000
    assert keys.ask(key).tenant == "acme"


def test_good_keys_do_not_use_up_an_address(keys):
    assert {keys.ask(keys.issue(f"t{number}")).tenant for number in range(2 * BURST)} == {
        f"t{number}" for number in range(2 * BURST)
    }


def test_shapes_that_are_no_keys_never_cost_a_verification(keys):
    for key in (b"", b"sk-zl1-", b"x" * 215, b"sk-zl1-" + b"?" * 208, b"sk-zl1-" + b"A" * 208):
        with pytest.raises(Unauthenticated):
            keys.ask(key)
    assert keys.keys.counts.verified == 0


def test_one_customers_ipv6_addresses_share_a_bucket():
    assert network("2001:db8:1:2:3::4") == network("2001:db8:1:2::9") != network("2001:db8:1:3::9")


def test_a_key_ends_at_its_second_although_it_is_known(keys):
    key = keys.issue(days=1)
    assert keys.ask(key).tenant == "acme"
    keys.now += 86_399
    assert keys.ask(key).tenant == "acme"
    keys.now += 1
    with pytest.raises(Unauthenticated, match="expired"):
        keys.ask(key)


def test_a_key_that_begins_later_is_refused_until_then(keys):
    keys.now += 10
    key = keys.issue()
    keys.now -= 10
    with pytest.raises(Unauthenticated, match="not valid yet"):
        keys.ask(key)


def test_a_revoked_key_is_refused_from_the_next_request_on(keys):
    key, other = keys.issue(), keys.issue()
    revoked = keys.ask(key).key_id.hex()
    keys.folder.revoke([revoked], [], keys.now + 1, keys.now)
    keys.reload()
    with pytest.raises(Unauthenticated, match="revoked"):
        keys.ask(key)
    assert keys.ask(other).tenant == "acme"


def test_all_keys_of_a_tenant_can_be_revoked_and_new_ones_are_good(keys):
    old, others = keys.issue("acme"), keys.issue("umbrella")
    keys.folder.revoke([], ["acme"], keys.now + 1, keys.now)
    keys.reload()
    keys.now += 1
    new = keys.issue("acme")
    with pytest.raises(Unauthenticated, match="revoked"):
        keys.ask(old)
    assert keys.ask(others).tenant == "umbrella"
    assert keys.ask(new).tenant == "acme"


def test_two_signing_keys_count_at_once_and_a_third_rotation_drops_the_first(keys):
    first = keys.issue()
    keys.folder.rotate(1000, keys.now)
    second = keys.issue()
    keys.reload()
    assert keys.ask(first).tenant == keys.ask(second).tenant == "acme"
    keys.folder.rotate(1000, keys.now)
    keys.reload()
    assert keys.ask(second).tenant == "acme"
    with pytest.raises(Unauthenticated):
        keys.ask(first)


def test_a_key_ends_with_its_signing_key(keys):
    key = keys.issue(days=0)
    keys.folder.rotate(1000, keys.now)
    keys.reload()
    assert keys.ask(key).tenant == "acme"
    keys.now += 1000
    with pytest.raises(Unauthenticated):
        keys.ask(key)


def test_models_are_told_by_name(keys):
    key = keys.issue(models=("b",))
    wide = keys.issue()
    keys.reload()
    assert keys.ask(key).models == frozenset({"b"})
    assert keys.ask(wide).models is None


def test_nobody_is_let_in_on_a_revocation_list_that_is_too_old(keys):
    found = keys.folder.documents()
    strict = Authenticator(found.key_set, found.revocations, lambda: float(keys.now), lambda: 0, max_age_s=60)
    key = keys.issue()
    assert strict.admit(key, "a").tenant == "acme"
    keys.now += 60
    assert strict.known(key) is None
    with pytest.raises(Unavailable):
        strict.admit(key, "a")


def test_no_refusal_shows_any_part_of_the_key(keys):
    key = keys.issue()
    shown = wrong(key), key[:-1], b"sk-zl1-" + b"secret" * 30
    for bad in shown:
        with pytest.raises(Unauthenticated) as caught:
            keys.ask(bad)
        assert bad[7:20].decode() not in f"{caught.value!r} {caught.value.message}"
