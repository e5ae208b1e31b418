"""``zerolayer wire``: a file of captured bytes to a table on standard output."""

from __future__ import annotations

from pathlib import Path

from zerolayer.check.wire_dump import FORMS, as_json, guess, lines, read


def run(path: Path, form: str | None, *, json: bool) -> int:
    """Print what a file holds, in ``form`` or the likeliest one; the exit code. Raises ``InputFileError``."""
    data = read(path)
    form = form or guess(data)
    ranges = FORMS[form](data)
    print(as_json(form, data, ranges).decode() if json else "\n".join(lines(ranges)))
    return 0
