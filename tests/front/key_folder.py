"""Keys for tests, and how the stock client shows one."""

from __future__ import annotations

import time

import openai
from echo_service import Service

from zerolayer.guard.auth.signing import KeyFolder, Wish

ASK = [{"role": "user", "content": "Say this."}]


class Keys(KeyFolder):
    """A folder of keys whose wall clock is the real one."""

    def key(self, tenant: str = "acme", days: float = 1, **members: object) -> str:
        now = int(time.time())
        return self.issue(Wish(tenant, now + int(days * 86_400), **members), now)[0]

    def void(self, key_id: bytes) -> None:
        now = int(time.time())
        self.revoke([key_id.hex()], [], now, now)


def bearer(key: str) -> str:
    return f"authorization: Bearer {key}"


def stock(service: Service, key: str, **given: object) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"http://127.0.0.1:{service.port}/v1", api_key=key, **{"max_retries": 0, **given})
