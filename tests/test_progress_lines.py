"""What `zerolayer serve` tells while it reads a model."""

from __future__ import annotations

import io

from zerolayer.serve.command import ProgressLines


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_gets_few_lines_of_a_bar_and_its_end() -> None:
    out, now_s = io.StringIO(), [1.0]
    lines = ProgressLines(out, lambda: now_s[0])
    for percent in range(1, 101):
        lines.show(f"weights [###...] {percent:3d} %")
        now_s[0] += 0.125
    told = out.getvalue().splitlines()
    assert [line.rpartition("]")[2].strip() for line in told] == ["1 %", "41 %", "81 %", "100 %"]


def test_a_log_gets_every_line_that_is_no_bar() -> None:
    out = io.StringIO()
    lines = ProgressLines(out, lambda: 1.0)
    for line in ("model org/name: from the local cache", "weights [#.]  50 %", "weights [##] 100 %", "done"):
        lines.show(line)
    assert out.getvalue().splitlines() == ["model org/name: from the local cache", "weights [#.]  50 %",
                                           "weights [##] 100 %", "done"]  # fmt: skip


def test_on_a_terminal_a_bar_grows_in_place_and_nothing_of_a_longer_line_stays() -> None:
    out = Terminal()
    lines = ProgressLines(out, lambda: 1.0)
    for line in ("model org/name: from the local cache", "weights [#.]  50 %", "weights [##] 100 %"):
        lines.show(line)
    shown = [part.rpartition("\r\x1b[K")[2] for part in out.getvalue().split("\n")]
    assert shown == ["model org/name: from the local cache", "weights [##] 100 %", ""]
    assert out.getvalue().count("\r\x1b[K") == 3
