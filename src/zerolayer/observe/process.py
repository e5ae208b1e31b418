"""What the operating system says about this process: context switches and memory. Read on scrape only."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from zerolayer.observe.exposition import family, single

_STATM = Path("/proc/self/statm")


def process_lines(labels: str, requests: int) -> Iterator[str]:
    """The samples with HELP and TYPE. ``requests``: how many have ended."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    switches = (("voluntary", usage.ru_nvcsw), ("involuntary", usage.ru_nivcsw))
    name = "zerolayer:context_switches_total"
    yield from family(name, "counter", "Context switches of all threads.", labels, "kind", switches)
    if requests:
        share = 100 * (usage.ru_nvcsw + usage.ru_nivcsw) / requests
        name = "zerolayer:context_switches_per_100_requests"
        yield from single(name, "gauge", "Of all threads, since the start.", labels, share)
    name = "zerolayer:cpu_seconds_total"
    spent = (("user", usage.ru_utime), ("system", usage.ru_stime))
    yield from family(name, "counter", "CPU time of all threads.", labels, "mode", spent)


def resident_bytes() -> int | None:
    """Memory of the process that is in use, the model's included; None where ``/proc`` does not tell it."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return None
