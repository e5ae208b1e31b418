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
from collections.abc import Iterator, Sequence
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
    root: bytes  # of the tree that it is in
    raw: bytes  # its token ids, in whole blocks
    salt: bytes
    constant: bool
    users: int = 0
    hits: int = 1
    priority: float = 0.0


class _Node:
    """A block border: the blocks that follow on it in some entry, and the entries that come by here."""

    __slots__ = ("children", "holders")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node] = {}
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
        self._roots: dict[bytes, _Node] = {}  # a tree of blocks for each salt, and one for the constants
        self._policy = policy
        self._salt_entries = max(1, int(entries * salt_share))
        self._by_salt: dict[bytes, int] = {}  # entries of each
        self._clock = 0.0
        self.queries = 0  # prompt tokens that were looked up
        self.hits = 0  # of them, tokens that were found

    def attach(self, prompt: Sequence[int], salt: bytes = b"") -> Hit | None:
        """The longest kept prefix of ``prompt`` that leaves at least one token to compute; ``detach`` gives it back."""
        self.queries += len(prompt)
        raw = _blocks(prompt, min(len(prompt) - 1, self._entry_tokens))
        constant, own = self._path(_CONSTANT, raw), self._path(_salted(salt), raw)
        longest = constant if len(constant) >= len(own) else own
        return self._use(next(iter(longest[-1].holders)), len(longest) * BLOCK) if longest else None

    def detach(self, hit: Hit) -> None:
        """The prompt's slot is closed."""
        self._entries[hit.entry].users -= 1

    def admit(self, prompt: Sequence[int], salt: bytes = b"", *, constant: bool = False) -> Hit | None:
        """Choose an entry for a computed prompt's prefix; the caller copies ``tokens`` tokens into it.

        None if the prompt is shorter than a block, is kept already, or every entry that it may take is in use or
        constant.
        """
        raw = _blocks(prompt, min(len(prompt), self._entry_tokens))
        root, blocks = _CONSTANT if constant else _salted(salt), len(raw) // _BLOCK_BYTES
        if not raw or blocks in (len(self._path(root, raw)), len(self._path(_CONSTANT, raw))):
            return None
        number = self._make_room(b"" if constant else salt)
        if number is None:
            return None
        if not constant:
            self._by_salt[salt] = self._by_salt.get(salt, 0) + 1
        entry = _Entry(root, raw, salt, constant)
        self._rank(entry, blocks * BLOCK)
        self._entries[number] = entry
        node = self._roots.setdefault(root, _Node())
        for block in _cut(raw):
            node = node.children.setdefault(block, _Node())
            node.holders.add(number)
        return Hit(number, blocks * BLOCK)

    def _path(self, root: bytes, raw: bytes) -> list[_Node]:
        """The borders that some entry shares with ``raw``, from the first on."""
        node, path = self._roots.get(root), []
        for block in _cut(raw):
            node = None if node is None else node.children.get(block)
            if node is None:
                break
            path.append(node)
        return path

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
        return [Kept(entry.salt, list(array("i", entry.raw))) for entry in entries if not entry.constant]

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
        node = self._roots[entry.root]
        for block in _cut(entry.raw):
            child = node.children[block]
            child.holders.discard(number)
            if not child.holders:  # nobody comes by there, and so nobody beyond
                del node.children[block]
                break
            node = child
        if not self._roots[entry.root].children:
            del self._roots[entry.root]
        return number

    def _forget_one(self, salt: bytes) -> None:
        left = self._by_salt[salt] - 1
        if left:
            self._by_salt[salt] = left
        else:
            del self._by_salt[salt]


_CONSTANT = b"\xff\xff"  # a salt's root begins with its length, which is less
_BLOCK_BYTES = BLOCK * array("i").itemsize


def _salted(salt: bytes) -> bytes:
    return len(salt).to_bytes(2, "big") + salt


def _blocks(prompt: Sequence[int], tokens: int) -> bytes:
    """The first ``tokens`` of a prompt as bytes, in whole blocks."""
    return array("i", prompt[: max(0, tokens) // BLOCK * BLOCK]).tobytes()


def _cut(raw: bytes) -> Iterator[bytes]:
    return (raw[at : at + _BLOCK_BYTES] for at in range(0, len(raw), _BLOCK_BYTES))
