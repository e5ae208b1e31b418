"""``zerolayer serve`` with the echoing model: a process of its own for tests of signals and descriptors.

Arguments: port, step_us and, if they are to be others, the folder of the ledger or "off", and the host. A number on
standard input leaves that many further descriptors; -1 takes the limit away.
"""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

from echo_model import EchoEngine, Loaded

from zerolayer.contract import Contract, load
from zerolayer.errors import StartupError
from zerolayer.serve.command import main


def echo(contract: Contract, progress: object) -> Loaded:
    context = contract.context
    step_us = contract.engine.mock_step_us or 0
    return Loaded(
        EchoEngine(
            slots=context.slots, slot_tokens=context.slot_tokens, chunk_tokens=context.chunk_tokens, step_us=step_us
        )
    )


def starve() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for line in sys.stdin:
        left = int(line)
        # Listing takes a descriptor itself: the highest one in the list.
        limit = hard if left < 0 else max(int(path.name) for path in Path("/proc/self/fd").iterdir()) + left
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        print("limited", flush=True)


if __name__ == "__main__":
    threading.Thread(target=starve, daemon=True).start()
    flags = {"port": sys.argv[1], "admin": "127.0.0.1:0", "slots": "2", "engine": f"mock:step_us={sys.argv[2]}"}
    flags["ledger"] = sys.argv[3] if len(sys.argv) > 3 else "off"
    flags["host"] = sys.argv[4] if len(sys.argv) > 4 else "127.0.0.1"
    try:
        sys.exit(main(load(None, {}, flags), echo))
    except StartupError as error:
        print(error.message, flush=True)
        sys.exit(3)
