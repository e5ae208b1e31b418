"""A folder of keys in a temporary place, and an authenticator whose clocks stand still until they are moved."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerolayer.guard.auth.authenticator import Authenticator
from zerolayer.guard.auth.key_files import KeyDocuments
from zerolayer.guard.auth.signing import KeyFolder, Wish

NOW = 1_800_000_000


class Keys:
    """``now`` in Unix seconds, ``mono`` in nanoseconds; ``keys`` is asked as a server would."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.mono = 0
        self.folder = KeyFolder(folder)
        documents = self.folder.create(self.now)
        self.keys = Authenticator(documents.key_set, documents.revocations, lambda: float(self.now), lambda: self.mono)

    def issue(self, tenant: str = "acme", days: float = 1, **members: object) -> bytes:
        expires = 0 if days == 0 else self.now + int(days * 86_400)
        return self.folder.issue(Wish(tenant, expires, **members), self.now)[0].encode()

    def reload(self) -> KeyDocuments:
        documents = self.folder.documents()
        self.keys.adopt(documents.key_set, documents.revocations)
        return documents

    def ask(self, key: bytes, address: str = "192.0.2.1"):
        return self.keys.known(key) or self.keys.admit(key, address)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path / "keys")
