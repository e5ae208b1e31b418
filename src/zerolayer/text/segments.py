"""A chat template as constant segments: what stands before, between and after the messages.

The template is rendered on sentinels, in many orders of roles. Each rendering is cut at the sentinels; what lies
between two messages is a *gap*. A template can be taken apart when a gap depends on nothing but: whether the
conversation begins with a system message, the roles on its two sides, and whether the right one is the last message. A
leading system message is no border but a part of gaps: Mistral writes it into the first or the last user message.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import product

import msgspec

# Private-use characters stand for what changes from request to request; the padding shows whether a template trims.
# Vertical tab and form feed are white space that no template writes itself.
_MAX_RENDERINGS = 2_000
_LEFT, _RIGHT = "\x0b\x0c", "\x0c\x0b"
_SENTINEL = re.compile("(\x0b\x0c)?\ue000([0-9]+)\ue001(\x0c\x0b)?|\ue002([0-9]+)\ue003")
RESERVED = re.compile("[\ue000-\ue003\x0b\x0c]")


class Strip(Enum):
    """Which white space of a content the template takes away, as ``str.strip`` does."""

    NONE = "none"
    LEFT = "left"
    RIGHT = "right"
    BOTH = "both"

    def apply(self, text: str) -> str:
        """``text`` as the template would write it."""
        if self is Strip.NONE:
            return text
        if self is Strip.BOTH:
            return text.strip()
        return text.lstrip() if self is Strip.LEFT else text.rstrip()


_STRIP_OF = {
    (True, True): Strip.NONE,
    (False, True): Strip.LEFT,
    (True, False): Strip.RIGHT,
    (False, False): Strip.BOTH,
}


class Content(msgspec.Struct, frozen=True):
    """The content of message ``index``."""

    index: int
    strip: Strip


class System(msgspec.Struct, frozen=True):
    """The content of the leading system message."""

    strip: Strip


class Next(msgspec.Struct, frozen=True):
    """The content of the message on the gap's right side; always the gap's last item."""

    strip: Strip


class Date(msgspec.Struct, frozen=True):
    """The date of the request, as ``strftime`` writes it by this format."""

    format: str


Item = str | System | Next | Date
Gap = tuple[Item, ...]


class GapKey(msgspec.Struct, frozen=True):
    """What a gap may depend on. ``left`` or ``right`` is None at the ends of the conversation."""

    system_first: bool
    left: str | None
    right: str | None
    right_is_last: bool


class NotSeparable(Exception):
    """The template cannot be taken apart; the text says why."""


class Formats:
    """Date formats that a template asks for while it is rendered on sentinels."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def strftime(self, date_format: str) -> str:
        """A sentinel for the date in that format."""
        if date_format not in self.seen:
            self.seen.append(date_format)
        return f"\ue002{self.seen.index(date_format)}\ue003"


def sentinel(index: int) -> str:
    """The content of message ``index`` in a rendering that is to be taken apart."""
    return f"{_LEFT}\ue000{index}\ue001{_RIGHT}"


def _first_orders(roles: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Orders of roles to begin with: up to three messages, and a system message before."""
    for length in (1, 2, 3):
        yield from product(roles, repeat=length)
    if "system" in roles:
        yield from (("system", *order) for order in product(roles, repeat=3))


def gap_keys(roles: Sequence[str]) -> list[GapKey]:
    """The keys of the gaps of a conversation, in order; at least one."""
    system_first = roles[0] == "system"
    borders = [None, *roles[1 if system_first else 0 :], None]
    last = len(borders) - 2
    return [
        GapKey(system_first, borders[at], borders[at + 1], right_is_last=at + 1 == last)
        for at in range(len(borders) - 1)
    ]


def _items(rendering: str, formats: Formats) -> list[str | Content | Date]:
    """The rendering, cut at sentinels."""
    items: list[str | Content | Date] = []
    at = 0
    for found in _SENTINEL.finditer(rendering):
        items.append(rendering[at : found.start()])
        at = found.end()
        left, index, right, date = found.groups()
        if date is not None:
            items.append(Date(formats.seen[int(date)]))
        else:
            items.append(Content(int(index), _STRIP_OF[left is not None, right is not None]))
    items.append(rendering[at:])
    if any(isinstance(item, str) and RESERVED.search(item) for item in items):
        raise NotSeparable("the template changes contents or dates")
    return [item for item in items if item != ""]


def _gaps(roles: Sequence[str], rendering: str, formats: Formats) -> list[Gap]:
    """The gaps of one rendering, one for each of ``gap_keys(roles)``."""
    first = 1 if roles[0] == "system" else 0
    gaps: list[Gap] = []
    gap: list[Item] = []
    expected = first
    for item in _items(rendering, formats):
        if not isinstance(item, Content):
            gap.append(item)
        elif item.index < first:
            gap.append(System(item.strip))
        elif item.index == expected:
            gaps.append((*gap, Next(item.strip)))
            gap = []
            expected += 1
        else:
            raise NotSeparable("the template repeats or reorders messages")
    if expected != len(roles):
        raise NotSeparable("the template leaves messages out")
    return [*gaps, tuple(gap)]


def learn(roles: Sequence[str], render: Callable[[tuple[str, ...]], str | None], formats: Formats) -> dict[GapKey, Gap]:
    """The gaps of a template. ``render`` gives its rendering of sentinels in an order of roles; None: it refuses.

    Orders that showed a new gap are made longer, until nothing new appears. A template may refuse an order that it
    takes again one message later (the last one must be the user's), so a refusal is looked behind once.

    Raises ``NotSeparable`` if one key has two different gaps.
    """
    gaps: dict[GapKey, Gap] = {}
    pending = deque((order, False) for order in _first_orders(roles))
    renderings = 0
    while pending:
        order, look_behind = pending.popleft()
        renderings += 1
        if renderings > _MAX_RENDERINGS:
            raise NotSeparable("the template has too many cases")
        rendering = render(order)
        if rendering is None:
            if look_behind:
                pending.extend(((*order, role), False) for role in roles)
            continue
        known = len(gaps)
        found = zip(gap_keys(order), _gaps(order, rendering, formats), strict=True)
        if any(gaps.setdefault(key, gap) != gap for key, gap in found):
            raise NotSeparable("what the template writes between two messages depends on other messages")
        if len(gaps) > known:
            pending.extend(((*order, role), True) for role in roles)
    return gaps
