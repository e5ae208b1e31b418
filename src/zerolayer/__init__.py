"""zerolayer: an LLM inference server in which nothing stands between a client's bytes and the model's arithmetic.

``zerolayer.Client`` and ``zerolayer.AsyncClient`` are the client; they are imported on first use, so that neither the
server nor ``--help`` pays for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerolayer.client.async_client import AsyncClient as AsyncClient
    from zerolayer.client.client import Client as Client

    __version__: str

__all__ = ["AsyncClient", "Client", "__version__"]


def __getattr__(name: str) -> object:
    """Import a client and look up ``__version__`` when they are asked for (PEP 562)."""
    if name == "Client":
        from zerolayer.client.client import Client

        return Client
    if name == "AsyncClient":
        from zerolayer.client.async_client import AsyncClient

        return AsyncClient
    if name == "__version__":
        from importlib.metadata import PackageNotFoundError, version

        try:
            return version("zerolayer")
        except PackageNotFoundError:  # a source tree on the path, not installed
            return "0+source"
    raise AttributeError(f"module 'zerolayer' has no attribute {name!r}")
