"""The bundled model under a closed loop of 32, with and without the loop's short time slice."""

from __future__ import annotations

import contextlib
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lean_client import LoadLoop
from serve import Target, Work

WORKERS = 32
LONG_WORDS = 1500  # over 4 KB of text: tokenised on the helper thread


@contextlib.contextmanager
def _probed(*flags: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    command = [sys.executable, str(Path(__file__).with_name("front_live.py")), str(WORKERS), *flags]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().split()[0].decode()}", process
    finally:
        process.kill()
        process.wait()


def measure(requests: int, *, short_slice: bool) -> dict[str, Any]:
    """``requests`` of 127 words and 256 tokens, every sixteenth a long one. Raises ``SystemExit`` when one fails."""
    with _probed(*([] if short_slice else ["--no-slice"])) as (url, process):
        target = Target("zerolayer", url, "smollm2")
        payloads = Work(127, 256, 0.7, 1).payloads(target, "glue", requests)
        for number, long in enumerate(Work(LONG_WORDS, 8, 0.7, 1).payloads(target, "long", requests // 16)):
            payloads[16 * number + 8] = long
        loop = LoadLoop(url, clock_ns=time.monotonic_ns)
        gc.collect()
        gc.disable()
        try:
            records = loop.closed(payloads, WORKERS)
        finally:
            gc.enable()
            loop.close()
        failed = {f"{record.status} {record.error}" for record in records if not record.ok}
        if failed:
            raise SystemExit(f"requests failed: {', '.join(sorted(failed))}")
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())
