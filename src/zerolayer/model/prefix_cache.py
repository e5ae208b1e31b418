"""Which prompt prefixes are kept, and which one makes room. Pure bookkeeping: tokens in, entry numbers out; no tensors.

An entry holds the keys and values of the first tokens of some prompt, in whole blocks of 16 tokens, because
attention works in such blocks and a shared block must have the bits of a private one. Entries are found by exact
token ids, block by block, and a salt: prefixes of one salt are never seen by another. *Constants* (system prompts of
the contract) have no salt and never leave.

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
    blocks: list[bytes]
    salt: bytes
    constant: bool
    users: int = 0
    hits: int = 1
    priority: float = 0.0

    @property
    def tokens(self) -> int:
        return len(self.blocks) * BLOCK


class _Node:
    """A block of tokens behind those that lead to it: the blocks that follow, and the entries that hold it."""

    __slots__ = ("after", "holders")

    def __init__(self) -> None:
        self.after: dict[bytes, _Node] = {}
        self.holders: set[int] = set()


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
        self._constants = _Node()
        self._salted: dict[bytes, _Node] = {}  # by salt, what stands before all first blocks
        self._policy = policy
        self._salt_entries = max(1, int(entries * salt_share))
        self._by_salt: dict[bytes, int] = {}  # entries of each
        self._clock = 0.0
        self.queries = 0  # prompt tokens that were looked up
        self.hits = 0  # of them, tokens that were found

    def attach(self, prompt: Sequence[int], salt: bytes = b"") -> Hit | None:
        """The longest kept prefix of ``prompt`` that leaves at least one token to compute; ``detach`` gives it back."""
        self.queries += len(prompt)
        blocks = _blocks(prompt, min(len(prompt) - 1, self._entry_tokens))
        depth, holders = _found(self._constants, blocks)
        own = self._salted.get(salt)
        if own is not None:
            own_depth, own_holders = _found(own, blocks)
            if own_depth > depth:
                depth, holders = own_depth, own_holders
        return self._use(next(iter(holders)), depth * BLOCK) if depth else None

    def detach(self, hit: Hit) -> None:
        """The prompt's slot is closed."""
        self._entries[hit.entry].users -= 1

    def keeps(self, tokens: int) -> int:
        """How many of a prompt's ``tokens`` an entry would hold."""
        return min(tokens, self._entry_tokens) // BLOCK * BLOCK

    def admit(self, prompt: Sequence[int], salt: bytes = b"", *, constant: bool = False) -> Hit | None:
        """Choose an entry for the beginning of a prompt; the caller writes ``tokens`` tokens into it.

        None if the prompt is shorter than a block, is kept already, or every entry that it may take is in use or
        constant.
        """
        blocks = _blocks(prompt, self._entry_tokens)
        if not blocks or self._holds(blocks, b"" if constant else salt, constant=constant):
            return None
        number = self._make_room(b"" if constant else salt)
        if number is None:
            return None
        if not constant:
            self._by_salt[salt] = self._by_salt.get(salt, 0) + 1
        entry = _Entry(blocks, salt, constant)
        self._rank(entry, entry.tokens)
        self._entries[number] = entry
        node = self._root(entry)
        for block in blocks:
            after = node.after.get(block)
            if after is None:
                after = node.after[block] = _Node()
            after.holders.add(number)
            node = after
        return Hit(number, entry.tokens)

    def forget(self, kept: Hit) -> None:
        """What was to be written into an entry that ``admit`` gave was not."""
        self._remove(kept.entry)
        self._free.append(kept.entry)

    def _holds(self, blocks: list[bytes], salt: bytes, *, constant: bool) -> bool:
        roots = [self._constants] if constant else [self._constants, self._salted.get(salt, self._constants)]
        return any(_found(root, blocks)[0] == len(blocks) for root in roots)

    def _root(self, entry: _Entry) -> _Node:
        return self._constants if entry.constant else self._salted.setdefault(entry.salt, _Node())

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
            Kept(entry.salt, array("i", b"".join(entry.blocks)).tolist()) for entry in entries if not entry.constant
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
        self._clock = max(self._clock, self._remove(number).priority)
        return number

    def _remove(self, number: int) -> _Entry:
        entry = self._entries.pop(number)
        root = node = self._root(entry)
        for block in entry.blocks:
            after = node.after[block]
            after.holders.discard(number)
            if not after.holders:  # nor has anybody what follows
                del node.after[block]
                break
            node = after
        if not entry.constant:
            self._forget_one(entry.salt)
            if not root.after:
                del self._salted[entry.salt]
        return entry

    def _forget_one(self, salt: bytes) -> None:
        left = self._by_salt[salt] - 1
        if left:
            self._by_salt[salt] = left
        else:
            del self._by_salt[salt]


def _blocks(prompt: Sequence[int], most: int) -> list[bytes]:
    """The whole blocks of at most so many tokens, each as bytes."""
    raw = array("i", prompt[: max(0, most)]).tobytes()
    step = BLOCK * array("i").itemsize
    return [raw[end - step : end] for end in range(step, len(raw) + 1, step)]


def _found(node: _Node, blocks: list[bytes]) -> tuple[int, set[int]]:
    """How many of the first blocks are held behind ``node``, and by whom the last of them is."""
    depth = 0
    for block in blocks:
        after = node.after.get(block)
        if after is None:
            break
        node, depth = after, depth + 1
    return depth, node.holders
