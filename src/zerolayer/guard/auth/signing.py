"""The private side: a folder with ``signing.key`` (secret, mode 0600) and the two public files that it signs.

The root key signs the key set and the revocation list; signing keys sign clients' keys and can be rotated, two of
them counting at once. Wall time is passed in, in Unix seconds.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec import Meta

from zerolayer.errors import UsageError, system_reason
from zerolayer.guard.auth.key_files import KEY_SET, REVOKED, SIGNING, KeyDocuments, KeyFiles, write_file
from zerolayer.guard.auth.key_format import MODELS, Claims, pack, spell
from zerolayer.guard.auth.key_set import VERSION, KeySet, Revocations, SigningKey, encode, sign
from zerolayer.guard.identity import KEY_ID_BYTES, Quota
from zerolayer.wire.schema import Tier

SECRET_MODE: Final = 0o600
_OTHERS: Final = 0o077
_Seed = Annotated[bytes, Meta(min_length=32, max_length=32)]


class Secret(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``signing.key``: the seeds of the root and of the signing key."""

    version: int
    root: _Seed
    signing: _Seed


class Wish(msgspec.Struct, frozen=True):
    """What a key is to say. ``models`` are names, () = all; ``expires_s`` 0 = never."""

    tenant: str
    expires_s: int
    quota: Quota = Quota()
    models: Sequence[str] = ()
    group: str = ""
    tier: Tier = Tier.PRIORITY
    is_node: bool = False


class KeyFolder:
    """One folder of keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def documents(self) -> KeyDocuments:
        """The public files. Raises ``StartupError``."""
        return KeyFiles(self.folder / KEY_SET, self.folder / REVOKED).read()

    def create(self, now_s: int) -> KeyDocuments:
        """A fresh root, a signing key, a key set and an empty list. Raises ``UsageError`` where keys are already."""
        for name in (SIGNING, KEY_SET, REVOKED):
            if (self.folder / name).exists():
                raise UsageError(f"{self.folder / name} exists. Name another folder, or rotate the key that is there.")
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{self.folder} cannot be made ({system_reason(error)}); name another folder") from None
        secret = Secret(VERSION, secrets.token_bytes(32), secrets.token_bytes(32))
        root = Ed25519PrivateKey.from_private_bytes(secret.root)
        key_set = KeySet(VERSION, 1, _public(root), (_signing_key(secret.signing, now_s),))
        found = KeyDocuments(sign(key_set, root), sign(Revocations(VERSION, 1, now_s), root))
        self._write_secret(secret)
        self._write_key_set(found.key_set)
        self._write_revocations(found.revocations)
        return found

    def issue(self, wish: Wish, now_s: int) -> tuple[str, Claims]:
        """A new key, and what it says. Raises ``UsageError`` for what a key cannot say."""
        secret = self._secret()
        key_set = self._known_models(wish.models, secret)
        signing = Ed25519PrivateKey.from_private_bytes(secret.signing)
        signer = _signing_key(secret.signing, now_s).id
        mask = sum(1 << key_set.models.index(name) for name in set(wish.models))
        claims = Claims(
            signer, wish.tenant, secrets.token_bytes(KEY_ID_BYTES), now_s, now_s, wish.expires_s, wish.quota, mask,
            wish.group, wish.tier, wish.is_node,
        )  # fmt: skip
        try:
            signed = pack(claims)
        except ValueError:
            raise UsageError("the key cannot say this: a limit, a time or a name is out of range") from None
        return spell(signed, signing.sign(signed)), claims

    def revoke(self, keys: Sequence[str], tenants: Sequence[str], before_s: int, now_s: int) -> Revocations:
        """Add key ids (hexadecimal), and tenants whose keys issued before ``before_s`` are void; sign the list anew."""
        found = self.documents()
        old = found.revocations
        revocations = Revocations(
            VERSION,
            old.serial + 1,
            now_s,
            tuple(dict.fromkeys((*old.keys, *keys))),
            {**old.tenants, **{name: max(before_s, old.tenants.get(name, 0)) for name in tenants}},
        )
        signed = sign(revocations, Ed25519PrivateKey.from_private_bytes(self._secret().root))
        self._write_revocations(signed)  # alone: a server that reads between two files would read the old list again
        return signed

    def rotate(self, overlap_s: int, now_s: int) -> KeySet:
        """A new signing key. The one before it counts for ``overlap_s`` more, any older one no more."""
        secret = self._secret()
        fresh = msgspec.structs.replace(secret, signing=secrets.token_bytes(32))
        current = _signing_key(secret.signing, now_s).id
        found = self.documents()
        last = [
            msgspec.structs.replace(key, not_after_s=now_s + overlap_s)
            for key in found.key_set.keys
            if key.id == current and overlap_s
        ]
        key_set = msgspec.structs.replace(found.key_set, keys=(_signing_key(fresh.signing, now_s), *last))
        # The public file first: a signing key that no server knows yet would issue keys that nobody takes.
        changed = self._sign_set(key_set, secret)
        self._write_key_set(changed)
        self._write_secret(fresh)
        return changed

    def _known_models(self, models: Sequence[str], secret: Secret) -> KeySet:
        """The key set, with ``models`` in its list."""
        found = self.documents()
        missing = [name for name in dict.fromkeys(models) if name not in found.key_set.models]
        if not missing:
            return found.key_set
        names = (*found.key_set.models, *missing)
        if len(names) > MODELS:
            raise UsageError(f"a key set has room for {MODELS} model names; make a further folder of keys")
        changed = self._sign_set(msgspec.structs.replace(found.key_set, models=names), secret)
        self._write_key_set(changed)
        return changed

    def _sign_set(self, key_set: KeySet, secret: Secret) -> KeySet:
        later = msgspec.structs.replace(key_set, epoch=key_set.epoch + 1)
        return sign(later, Ed25519PrivateKey.from_private_bytes(secret.root))

    def _secret(self) -> Secret:
        path = self.folder / SIGNING
        try:
            if path.stat().st_mode & _OTHERS:
                raise UsageError(f"{path} can be read by others; run: chmod 600 {path}")
            return msgspec.json.decode(path.read_bytes(), type=Secret)
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({system_reason(error)}). `zerolayer keys new` makes one; --folder says where."
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise UsageError(f"{path} is damaged; restore it from where you keep it") from None

    def _write_secret(self, secret: Secret) -> None:
        write_file(self.folder / SIGNING, msgspec.json.format(msgspec.json.encode(secret), indent=2), SECRET_MODE)

    def _write_key_set(self, key_set: KeySet) -> None:
        write_file(self.folder / KEY_SET, encode(key_set))

    def _write_revocations(self, revocations: Revocations) -> None:
        write_file(self.folder / REVOKED, encode(revocations))


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _signing_key(seed: bytes, now_s: int) -> SigningKey:
    """The public half; its id is the beginning of its digest."""
    public = _public(Ed25519PrivateKey.from_private_bytes(seed))
    number = int.from_bytes(hashlib.sha256(public).digest()[:4], "big")
    return SigningKey(number, public, now_s)
