"""What an operator may write for ``--peers``, and the source that each form stands for.

A new kind of source is a file of its own with a ``look``, and a line in ``FORMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from zerolayer.cluster.consul import Consul
from zerolayer.cluster.directory import Source
from zerolayer.cluster.dns_records import DnsAddresses, DnsServices
from zerolayer.cluster.endpoint_slices import EndpointSlices
from zerolayer.cluster.static_list import StaticList
from zerolayer.errors import StartupError

Build = Callable[[SplitResult], Source]

FORMS: Final[Mapping[str, tuple[str, Build]]] = {
    "http": ("http://host:port", StaticList.of),
    "https": ("https://host:port", StaticList.of),
    "dns": ("dns://name:port", DnsAddresses.of),
    "dns+srv": ("dns+srv://_service._tcp.name", DnsServices.of),
    "k8s": ("k8s://namespace/service", EndpointSlices.of),
    "consul": ("consul://agent:port/service", Consul.of),
}


def sources(texts: Iterable[str]) -> list[Source]:
    """Raises ``StartupError`` for a text that is none of the forms."""
    return [_source(text) for text in texts]


def _source(text: str) -> Source:
    try:
        parts = urlsplit(text)
        if parts.scheme in FORMS and parts.port != 0:
            return FORMS[parts.scheme][1](parts)
    except ValueError:
        pass
    forms = ", ".join(form for form, _ in FORMS.values())
    raise StartupError(f"a peer cannot be read; it is written in one of these forms: {forms}.")
