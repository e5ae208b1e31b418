"""Which prompt prefixes are kept, and which one makes room. Pure bookkeeping: tokens in, entry numbers out; no tensors.

An entry holds the keys and values of the first tokens of some prompt, in whole blocks of 16 tokens, because
attention works in such blocks and a shared block must have the bits of a private one. Entries are found by exact
token ids and a salt: prefixes of one salt are never seen by another. *Constants* (system prompts of the contract)
have no salt and never leave.

The entry that saves least leaves first: GreedyDual-Size with frequency (Cherkasova, "Improving WWW proxies
performance with Greedy-Dual-Size-Frequency caching policy", HP Labs 1998). All entries take the same memory, so the
gain of a hit is the tokens that need not be computed; the clock that rises with every eviction lets old fame fade.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Literal

import msgspec

BLOCK = 16

Policy = Literal["saves-least", "lru"]


class Hit(msgspec.Struct, frozen=True):
    """The first ``tokens`` of a prompt lie in ``entry``."""

    entry: int
    tokens: int


class Kept(msgspec.Struct, frozen=True):
    """The content of an entry."""

    salt: bytes
    token_ids: list[int]


class _Entry(msgspec.Struct):
    keys: list[bytes]  # the prefix at every block border, shortest first
    salt: bytes
    tokens: int
    constant: bool
    users: int = 0
    hits: int = 1
    priority: float = 0.0


class PrefixCache:
    """``entries`` prefixes of at most ``entry_tokens`` tokens. One thread calls.

    ``policy``: which idle entry makes room: the one that saves least, or the least recently used (to compare with).
    ``salt_share`` (0 to 1) is what the prefixes of one salt may fill of all entries; beyond that they make room among
    themselves, so that nobody can push out what others keep. Without a salt there is no limit: it is nobody's.
    """

    def __init__(
        self, *, entries: int, entry_tokens: int, policy: Policy = "saves-least", salt_share: float = 1.0
    ) -> None:
        if entry_tokens % BLOCK:
            raise ValueError(f"entry_tokens must be a multiple of {BLOCK}")
        self._entry_tokens = entry_tokens
        self._free = list(range(entries - 1, -1, -1))
        self._entries: dict[int, _Entry] = {}
        self._by_key: dict[bytes, set[int]] = {}
        self._policy = policy
        self._salt_entries = max(1, int(entries * salt_share))
        self._by_salt: dict[bytes, int] = {}  # entries of each
        self._clock = 0.0
        self.queries = 0  # prompt tokens that were looked up
        self.hits = 0  # of them, tokens that were found

    def attach(self, prompt: Sequence[int], salt: bytes = b"") -> Hit | None:
        """The longest kept prefix of ``prompt`` that leaves at least one token to compute; ``detach`` gives it back."""
        self.queries += len(prompt)
        most = min(len(prompt) - 1, self._entry_tokens)
        own, constant = _keys(prompt, _salted(salt), most), _keys(prompt, _CONSTANT, most)
        for index in range(len(own) - 1, -1, -1):
            holders = self._by_key.get(constant[index]) or self._by_key.get(own[index])
            if holders:
                return self._use(next(iter(holders)), (index + 1) * BLOCK)
        return None

    def detach(self, hit: Hit) -> None:
        """The prompt's slot is closed."""
        self._entries[hit.entry].users -= 1

    def admit(self, prompt: Sequence[int], salt: bytes = b"", *, constant: bool = False) -> Hit | None:
        """Choose an entry for a computed prompt's prefix; the caller copies ``tokens`` tokens into it.

        None if the prompt is shorter than a block, is kept already, or every entry that it may take is in use or
        constant.
        """
        most = min(len(prompt), self._entry_tokens)
        as_constant = _keys(prompt, _CONSTANT, most)
        keys = as_constant if constant else _keys(prompt, _salted(salt), most)
        if not keys or keys[-1] in self._by_key or as_constant[-1] in self._by_key:
            return None
        number = self._make_room(b"" if constant else salt)
        if number is None:
            return None
        if not constant:
            self._by_salt[salt] = self._by_salt.get(salt, 0) + 1
        entry = _Entry(keys, salt, len(keys) * BLOCK, constant)
        self._rank(entry, entry.tokens)
        self._entries[number] = entry
        for key in keys:
            self._by_key.setdefault(key, set()).add(number)
        return Hit(number, entry.tokens)

    def _use(self, number: int, tokens: int) -> Hit:
        entry = self._entries[number]
        entry.users += 1
        entry.hits += 1
        self._rank(entry, tokens)
        self.hits += tokens
        return Hit(number, tokens)

    @property
    def free(self) -> int:
        """Entries that hold nothing."""
        return len(self._free)

    def kept(self) -> list[Kept]:
        """Every prefix but the constants, the one that would leave last first."""
        entries = sorted(self._entries.values(), key=lambda entry: entry.priority, reverse=True)
        return [
            Kept(entry.salt, list(array("i", entry.keys[-1][len(_salted(entry.salt)) :])))
            for entry in entries
            if not entry.constant
        ]

    def _rank(self, entry: _Entry, tokens: int) -> None:
        if self._policy == "lru":
            self._clock += 1.0
            entry.priority = self._clock
        else:
            entry.priority = self._clock + entry.hits * tokens

    def _make_room(self, salt: bytes) -> int | None:
        full = salt != b"" and self._by_salt.get(salt, 0) >= self._salt_entries
        if self._free and not full:
            return self._free.pop()
        idle = [
            number
            for number, entry in self._entries.items()
            if not entry.users and not entry.constant and (entry.salt == salt or not full)
        ]
        if not idle:
            return None
        number = min(idle, key=lambda candidate: self._entries[candidate].priority)
        entry = self._entries.pop(number)
        self._forget_one(entry.salt)
        self._clock = max(self._clock, entry.priority)
        for key in entry.keys:
            holders = self._by_key[key]
            holders.discard(number)
            if not holders:
                del self._by_key[key]
        return number

    def _forget_one(self, salt: bytes) -> None:
        left = self._by_salt[salt] - 1
        if left:
            self._by_salt[salt] = left
        else:
            del self._by_salt[salt]


_CONSTANT = b"\xff\xff"  # heads of keys; a salt's head begins with its length, which is less


def _salted(salt: bytes) -> bytes:
    return len(salt).to_bytes(2, "big") + salt


def _keys(prompt: Sequence[int], head: bytes, tokens: int) -> list[bytes]:
    """Head and token bytes at every block border up to ``tokens``: exact, so no two prompts collide."""
    raw = array("i", prompt[: max(0, tokens)]).tobytes()
    step = BLOCK * array("i").itemsize
    return [head + raw[:end] for end in range(step, len(raw) + 1, step)]
