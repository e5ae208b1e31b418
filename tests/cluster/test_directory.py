"""When sources are asked again."""

from __future__ import annotations

import pytest

from zerolayer.cluster.directory import FIRST_S, SOONEST_S, Directory, DiscoveryError, Found

S = 1_000_000_000


class Source:
    """Fails as long as it has no answer."""

    name = "source"
    answer: Found | None = None

    def look(self) -> Found:
        if self.answer is None:
            raise DiscoveryError("no answer")
        return self.answer


def test_a_source_that_has_never_answered_is_asked_again_soon_and_then_ever_less_often() -> None:
    directory = Directory([Source()])
    pauses, now_ns = [], 0
    for _ in range(8):
        directory.look(now_ns)
        pauses.append((directory.next_ns() - now_ns) / S)
        now_ns = directory.next_ns()
    assert pauses[:4] == pytest.approx([FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S])
    assert pauses[-1] == SOONEST_S


def test_a_source_that_has_answered_and_fails_is_asked_again_after_a_second() -> None:
    source = Source()
    source.answer = Found(("http://a:1",), 0.0)
    directory = Directory([source])
    directory.look(0)
    source.answer = None
    directory.look(S)
    assert directory.next_ns() == S + SOONEST_S * S


def test_a_directory_waits_for_sources_that_have_not_answered_even_if_others_have() -> None:
    quick, slow = Source(), Source()
    quick.answer = Found(())
    directory = Directory([quick, slow])
    directory.look(0)
    assert directory.waits
    slow.answer = Found(())
    directory.look(S)
    assert not directory.waits
