"""What the operating system says about this process: context switches and memory. Read on scrape only."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from zerolayer.observe.exposition import family, single

_STATM = Path("/proc/self/statm")


def process_lines(labels: str) -> Iterator[str]:
    """The samples with HELP and TYPE; memory only where ``/proc`` tells it."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    switches = (("voluntary", usage.ru_nvcsw), ("involuntary", usage.ru_nivcsw))
    name = "zerolayer:context_switches_total"
    yield from family(name, "counter", "Context switches of all threads.", labels, "kind", switches)
    name = "zerolayer:cpu_seconds_total"
    spent = (("user", usage.ru_utime), ("system", usage.ru_stime))
    yield from family(name, "counter", "CPU time of all threads.", labels, "mode", spent)
    try:
        resident = int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    except OSError:
        return
    yield from single("zerolayer:resident_bytes", "gauge", "Memory of the process, model included.", labels, resident)
