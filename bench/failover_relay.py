"""A relay in a process of its own: ``python failover_relay.py TARGET``. It prints its URL and obeys lines.

``count``: from here on bytes count as the usual ones. ``slow``: from now on it passes a tenth of as many a second.
``corrupt``: it damages a fifth of the pieces of replies.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from judges.relay import Damage, Relay

SLOWER = 10


async def main() -> None:
    async with Relay(sys.argv[1]) as relay:
        print(relay.url, flush=True)
        begun_s, before = time.monotonic(), 0
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            if line == "count":
                begun_s, before = time.monotonic(), relay.passed
            elif line == "slow":
                relay.bytes_s = max(1.0, (relay.passed - before) / (time.monotonic() - begun_s) / SLOWER)
            elif line == "corrupt":
                relay.change = Damage()


if __name__ == "__main__":
    asyncio.run(main())
