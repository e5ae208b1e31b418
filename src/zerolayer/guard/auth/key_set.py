"""The public files: which signing keys count (``keyset.json``), and which keys count no more (``revoked.json``).

Both are JSON that people can read, signed by the root key of ``signing.key``; the key set names that root. The reader
refuses newer versions, members that it does not know, and whatever the root has not signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from msgspec import Meta

from zerolayer.errors import StartupError

VERSION: Final = 1
LIVE: Final = 2  # signing keys that count at once: one that signs, and the one before it
_DOMAINS: Final = {"KeySet": b"zerolayer key set 1\0", "Revocations": b"zerolayer revocations 1\0"}
_Bytes32 = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Seconds = Annotated[int, Meta(ge=0, lt=1 << 40)]


class SigningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key that signs clients' keys, from ``not_before_s`` to ``not_after_s`` (Unix seconds; 0 = no end)."""

    id: Annotated[int, Meta(ge=0, lt=1 << 32)]
    public: _Bytes32
    not_before_s: _Seconds
    not_after_s: _Seconds = 0

    def counts(self, now_s: float) -> bool:
        """Whether keys that it signed are valid at ``now_s``."""
        return self.not_before_s <= now_s and (not self.not_after_s or now_s < self.not_after_s)


class KeySet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``epoch`` grows with every change: a server that has seen one takes no older one."""

    version: int
    epoch: Annotated[int, Meta(ge=1)]
    root: _Bytes32
    keys: Annotated[tuple[SigningKey, ...], Meta(min_length=1, max_length=LIVE)]
    models: Annotated[tuple[str, ...], Meta(max_length=32)] = ()  # the names that bits of a key's mask stand for
    signature: bytes = b""


class Revocations(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``keys`` are hexadecimal ids; of ``tenants`` all keys are void that were issued before that second."""

    version: int
    serial: Annotated[int, Meta(ge=1)]
    issued_s: _Seconds
    keys: tuple[Annotated[str, Meta(pattern="^[0-9a-f]{32}$")], ...] = ()
    tenants: Mapping[str, _Seconds] = {}
    signature: bytes = b""


Signed = TypeVar("Signed", KeySet, Revocations)


def sign(document: Signed, root: Ed25519PrivateKey) -> Signed:
    """``document`` with the signature of its root."""
    return msgspec.structs.replace(document, signature=root.sign(_signed_bytes(document)))


def encode(document: KeySet | Revocations) -> bytes:
    """The file."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read_key_set(data: bytes, root: bytes | None = None) -> KeySet:
    """A key set that its own root has signed, or ``root`` where that is given. Raises ``StartupError``."""
    key_set = _decode(data, KeySet, "key set")
    _verify(key_set, root or key_set.root, "key set")
    return key_set


def read_revocations(data: bytes, root: bytes) -> Revocations:
    """A list that ``root`` has signed. Raises ``StartupError``."""
    revocations = _decode(data, Revocations, "revocation list")
    _verify(revocations, root, "revocation list")
    return revocations


def _decode(data: bytes, kind: type[Signed], what: str) -> Signed:
    try:
        version = msgspec.json.decode(data, type=_Versioned).version
        if version > VERSION:
            raise StartupError(f"the {what} has format {version}; this version reads {VERSION}. Update zerolayer")
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError):
        raise StartupError(f"the {what} is damaged. Take it from where `zerolayer keys` wrote it") from None


def _verify(document: KeySet | Revocations, root: bytes, what: str) -> None:
    try:
        Ed25519PublicKey.from_public_bytes(root).verify(document.signature, _signed_bytes(document))
    except (InvalidSignature, ValueError):
        raise StartupError(f"the {what} is not signed by the root of the key set. Take both from one folder") from None


def _signed_bytes(document: KeySet | Revocations) -> bytes:
    """The members in the order of the struct, as compact JSON, after the document's domain."""
    unsigned = msgspec.structs.replace(document, signature=b"")
    return _DOMAINS[type(document).__name__] + msgspec.json.encode(unsigned)


class _Versioned(msgspec.Struct):
    version: int
