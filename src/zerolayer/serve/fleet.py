"""A node among its neighbours: which accounts have their home where, and the messages between them.

Messages of one turn of the loop travel together, one request at a time to each neighbour, on threads of their own:
nothing here ever makes a client's request wait.
"""

from __future__ import annotations

import asyncio
import http.client
import logging
import secrets
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from zerolayer.contract_tenants import Tenants
from zerolayer.errors import StartupError
from zerolayer.front.leases import MESSAGES, PATH, Message
from zerolayer.guard.budget.budgets import Budgets
from zerolayer.guard.budget.lease import NAME_BYTES, Granted, Units
from zerolayer.guard.budget.shared import AHEAD, SharedAccount
from zerolayer.guard.identity import Quota

_log = logging.getLogger("zerolayer.serve")

_TIMEOUT_S: Final = 1.0
_ANSWER_BYTES: Final = 1 << 20
_granted = msgspec.json.Decoder(list[Granted])


class Fleet:
    """``nodes`` are the URLs of all nodes, ``own`` is this one's. ``start`` before the first message."""

    def __init__(self, nodes: Sequence[str], own: str, key: str) -> None:
        self._nodes = nodes
        self._own = own
        self._key = key
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(max(1, len(nodes) - 1), "zerolayer-leases")
        self._outbox: dict[str, list[Message]] = {node: [] for node in nodes if node != own}
        self._busy: set[str] = set()
        self._unheard: set[str] = set()
        self._scheduled = False
        self._budgets = Budgets(lambda: 0)  # until there are some

    def start(self, budgets: Budgets) -> None:
        """Whose accounts are shared."""
        self._budgets = budgets

    def elsewhere(self, account_id: bytes, whose: str, quota: Quota) -> SharedAccount | None:
        """The account, if another node is its home."""
        return None if self.home(account_id) == self._own else SharedAccount(account_id, whose, quota, self.want)

    def home(self, account_id: bytes) -> str:
        """The same node on every node: the highest of all hashes with the account (rendezvous hashing)."""
        return max(self._nodes, key=lambda node: blake2b(account_id + node.encode(), digest_size=8).digest())

    def want(self, account: SharedAccount, need: Units) -> None:
        """Ask for some requests' worth."""
        quota = account.quota
        ahead = Units(need.requests * AHEAD, need.tokens * AHEAD, need.compute_us * AHEAD, need.running * AHEAD)
        wanted = ahead.least(
            Units(quota.requests_per_minute, quota.tokens_per_minute, quota.compute_us_per_day, quota.concurrent).most(
                need
            )
        )
        ask = account.borrower.ask(secrets.token_bytes(NAME_BYTES), wanted, self._budgets.clock_us())
        if ask is not None:
            self._put(self.home(account.id), msgspec.structs.replace(ask, whose=account.whose, quota=quota))

    def sweep(self) -> None:
        """Several times a second: leases that are over go home."""
        for back in self._budgets.over():
            self._put(self.home(back.account), back)

    def close(self) -> None:
        """No more messages."""
        self._threads.shutdown(cancel_futures=True)

    def _put(self, node: str, message: Message) -> None:
        box = self._outbox[node]
        if len(box) < MESSAGES:  # what is lost is taken as used by its home
            box.append(message)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        for node, box in self._outbox.items():
            if box and node not in self._busy:
                self._busy.add(node)
                self._outbox[node] = []
                future = self._threads.submit(_post, node, self._key, box)
                future.add_done_callback(lambda done, node=node: self._tell(node, done))  # type: ignore[misc]

    def _tell(self, node: str, done: Future[list[Granted] | None]) -> None:
        if not (done.cancelled() or self._loop.is_closed()):
            self._loop.call_soon_threadsafe(self._answered, node, done.result())

    def _answered(self, node: str, answers: list[Granted] | None) -> None:
        self._busy.discard(node)
        if answers is None and node not in self._unheard:
            _log.warning("the node %s does not answer; keys whose home it is are refused here until it does", node)
            self._unheard.add(node)
        elif answers is not None:
            self._unheard.discard(node)
            for answer in answers:
                self._budgets.granted(answer)
        self._flush()


def _post(node: str, key: str, messages: list[Message]) -> list[Granted] | None:
    """On a thread: the answers, or None when there are none."""
    where = urlsplit(node)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    connection = kind(where.hostname or "", where.port, timeout=_TIMEOUT_S)
    try:
        headers = {"content-type": "application/json", "authorization": f"Bearer {key}"}
        connection.request("POST", PATH, msgspec.json.encode(messages), headers)
        reply = connection.getresponse()
        body = reply.read(_ANSWER_BYTES)
        return _granted.decode(body) if reply.status == 200 else None
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def build_fleet(tenants: Tenants) -> Fleet | None:
    """None for a node that is alone. Raises ``StartupError``."""
    if not tenants.nodes:
        return None
    return Fleet(tenants.nodes, tenants.node, node_key(tenants))


def node_key(tenants: Tenants) -> str:
    """The key that lets this node in with others; empty where none is named. Raises ``StartupError``."""
    if not tenants.node_key:
        return ""
    try:
        return Path(tenants.node_key).expanduser().read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise StartupError(
            f"{tenants.node_key} cannot be read. tenants.node_key names a file with a key of `zerolayer keys issue "
            "--tenant NAME --node`."
        ) from None
