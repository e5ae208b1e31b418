"""Who a request is for: the tenant that is charged, the key that was shown, and what they may use.

Made once for each key, when it is first verified, and shared by all its requests. Nothing here is secret: a key's id
names it in ledgers and revocation lists, and gives no access.
"""

from __future__ import annotations

from typing import Final

import msgspec

from zerolayer.wire.schema import Tier

KEY_ID_BYTES: Final = 16
NOBODY: Final = "_anyone"
"""The tenant of requests without a key, on a server without a key set. No issued tenant begins with ``_``."""


class Quota(msgspec.Struct, frozen=True):
    """What a key, or a tenant with all its keys, may use; 0 = no limit."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0  # prompt and answer together
    concurrent: int = 0  # requests at once
    compute_us_per_day: int = 0  # wall microseconds x cores of the engine, by UTC day

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return any((self.requests_per_minute, self.tokens_per_minute, self.concurrent, self.compute_us_per_day))


class Identity(msgspec.Struct, frozen=True):
    """One verified key, or ``ANYONE``.

    ``group`` names who shares cached prompts: equal groups may hit each other's; by default a tenant's own name.
    ``models`` are the names that the key may use (None: all), ``tier`` is the highest that its requests get.
    Times in Unix seconds; ``expires_s`` 0 = never.
    """

    tenant: str
    key_id: bytes = b""  # 16 bytes, b"" without a key
    group: str = ""
    quota: Quota = Quota()
    tier: Tier = Tier.PRIORITY
    models: frozenset[str] | None = None
    is_node: bool = False  # a server of the same fleet, which may ask for leases
    issued_s: int = 0
    expires_s: int = 0

    @property
    def keyed(self) -> bool:
        """Whether a key was shown."""
        return bool(self.key_id)

    @property
    def salt(self) -> bytes:
        """What the prompts of this sender are cached under; no group has the salt of a tenant."""
        if not self.keyed:
            return b""
        return (f"group {self.group}" if self.group else f"tenant {self.tenant}").encode()


ANYONE: Final = Identity(NOBODY)
