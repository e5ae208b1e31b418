"""Keys to identities: verified once, then found by digest (``known``), with a bound on what wrong keys can cost.

All methods run on the loop. A wrong shape, an unknown signer and a time that is over are told without any signature;
a wrong signature is remembered; what is left is bounded by ``Throttle``.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from zerolayer.errors import RateLimited, Unauthenticated, Unavailable, ZerolayerError
from zerolayer.guard.auth.key_format import Claims, MalformedKey, parse
from zerolayer.guard.auth.key_set import KeySet, Revocations, SigningKey
from zerolayer.guard.auth.throttle import Throttle
from zerolayer.guard.identity import Identity

KNOWN: Final = 65_536  # verified keys that are remembered
REFUSED: Final = 16_384  # and wrong ones
Value = TypeVar("Value")
_NS_PER_MS: Final = 1_000_000

_WRONG: Final = "the API key is not valid here; check that it was copied whole, or ask its issuer for a new one"
_EXPIRED: Final = "the API key has expired; ask its issuer for a new one"
_EARLY: Final = "the API key is not valid yet; check the clock, or wait for its time"
_REVOKED: Final = "the API key was revoked; ask its issuer for a new one"


class _Signer(msgspec.Struct, frozen=True):
    counts: Callable[[float], bool]
    verify: Callable[[bytes, bytes], None]


class Counts:
    """What happened to keys since the start, for metrics."""

    __slots__ = ("hits", "misses", "refused", "verified")

    def __init__(self) -> None:
        self.hits = self.misses = self.refused = self.verified = 0


class Authenticator:
    """``wall_s`` gives Unix seconds, ``clock_ns`` monotonic nanoseconds.

    ``max_age_s`` is how old the revocation list may be (0 = any): with an older one nobody is let in.
    """

    def __init__(
        self,
        key_set: KeySet,
        revocations: Revocations,
        wall_s: Callable[[], float],
        clock_ns: Callable[[], int],
        max_age_s: int = 0,
    ) -> None:
        self._wall_s = wall_s
        self._max_age_s = max_age_s
        self._throttle = Throttle(clock_ns)
        self._known: dict[bytes, tuple[Identity, float]] = {}  # and until when, by the wall clock
        self._refused: dict[bytes, ZerolayerError] = {}
        self.counts = Counts()
        self.adopt(key_set, revocations)

    def adopt(self, key_set: KeySet, revocations: Revocations) -> None:
        """From now on these count; whoever is known already is asked again at the next request."""
        self.key_set = key_set
        self.revocations = revocations
        self._signers = {key.id: _signer(key) for key in key_set.keys}
        self._revoked = frozenset(bytes.fromhex(key) for key in revocations.keys)
        self._known.clear()
        self._refused.clear()
        until = revocations.issued_s + self._max_age_s
        self._fresh_until_s = float(until) if self._max_age_s else float("inf")

    def known(self, key: bytes) -> Identity | None:
        """The identity of a key that was verified before and is still valid. The hot path."""
        found = self._known.get(sha256(key).digest())
        if found is None:
            return None
        identity, until_s = found
        if self._wall_s() >= until_s:
            return None
        self.counts.hits += 1
        return identity

    def admit(self, key: bytes, address: str) -> Identity:
        """The identity of any key, shown from ``address``.

        Raises ``Unauthenticated`` 401, ``RateLimited`` 429 for an address that showed too many wrong ones, and
        ``Unavailable`` 503 while the revocation list is too old.
        """
        self.counts.misses += 1
        try:
            return self._admit(key, address)
        except ZerolayerError:
            self.counts.refused += 1
            raise

    def _admit(self, key: bytes, address: str) -> Identity:
        now = self._wall_s()
        if now >= self._fresh_until_s:
            raise Unavailable("the revocation list is too old to let anybody in; the operator must renew it")
        try:
            parsed = parse(key)
        except MalformedKey:
            raise Unauthenticated(_WRONG) from None
        claims = parsed.claims
        signer = self._signers.get(claims.signer)
        if signer is None or not signer.counts(now):
            raise Unauthenticated(_WRONG)
        if claims.expires_s and now >= claims.expires_s:
            raise Unauthenticated(_EXPIRED)
        if now < claims.not_before_s:
            raise Unauthenticated(_EARLY)
        digest = sha256(key).digest()
        refusal = self._refused.get(digest)
        if refusal is not None:
            raise refusal.with_traceback(None)
        wait_ns = self._throttle.take(address)
        if wait_ns:
            ms = -(-wait_ns // _NS_PER_MS)
            raise RateLimited(
                "too many wrong API keys came from your address; wait a moment",
                retry_after_ms=ms,
                limit="wrong_keys",
            )
        self.counts.verified += 1
        try:
            signer.verify(parsed.signature, parsed.signed)
        except InvalidSignature:
            raise self._remember(digest, Unauthenticated(_WRONG)) from None
        self._throttle.give_back(address)
        if self._is_revoked(claims):
            raise self._remember(digest, Unauthenticated(_REVOKED))
        identity = self._identity(claims)
        until_s = min(identity.expires_s or self._fresh_until_s, self._fresh_until_s)
        _store(self._known, digest, (identity, until_s), KNOWN)
        return identity

    def _is_revoked(self, claims: Claims) -> bool:
        before = self.revocations.tenants.get(claims.tenant, 0)
        return claims.key_id in self._revoked or claims.issued_s < before

    def _identity(self, claims: Claims) -> Identity:
        named = self.key_set.models
        models = frozenset(name for bit, name in enumerate(named) if claims.models >> bit & 1)
        return Identity(
            claims.tenant,
            claims.key_id,
            claims.group,
            claims.quota,
            claims.tier,
            models if claims.models else None,
            claims.is_node,
            claims.issued_s,
            self._until(claims),
        )

    def _until(self, claims: Claims) -> int:
        """The end of the key or of its signer, whichever comes first."""
        ends = [end for key in self.key_set.keys if key.id == claims.signer for end in (key.not_after_s,) if end]
        if claims.expires_s:
            ends.append(claims.expires_s)
        return min(ends, default=0)

    def _remember(self, digest: bytes, refusal: ZerolayerError) -> ZerolayerError:
        _store(self._refused, digest, refusal, REFUSED)
        return refusal


def _signer(key: SigningKey) -> _Signer:
    return _Signer(key.counts, Ed25519PublicKey.from_public_bytes(key.public).verify)


def _store(table: dict[bytes, Value], digest: bytes, value: Value, limit: int) -> None:
    if len(table) >= limit:
        del table[next(iter(table))]  # the oldest
    table[digest] = value
