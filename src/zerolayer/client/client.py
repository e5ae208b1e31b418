"""The synchronous client: the asynchronous one on a thread of its own, so that both have one set of rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack

from zerolayer.client.async_client import AsyncClient
from zerolayer.client.async_stream import AsyncTextStream
from zerolayer.client.drafts import Drafter
from zerolayer.client.options import CallOptions, ClientOptions
from zerolayer.client.portal import Portal
from zerolayer.client.statistics import Statistics
from zerolayer.client.stream import TextStream


class Client:
    """A client of one server, or of several that serve the same model. Threads may share it.

    ``base_url`` is ``http(s)://host:port`` of one node, or a source that names nodes, such as ``dns://name:port``
    (``zerolayer.cluster.sources``), or a list of both. The other arguments are those of ``ClientOptions``. Raises
    ``InvalidAddress``, and ``NotSupported`` for gRPC without the package ``hpack``.
    """

    def __init__(
        self, base_url: str | Sequence[str] = "http://127.0.0.1:8000", **options: Unpack[ClientOptions]
    ) -> None:
        self._client = AsyncClient(base_url, **options)
        self._portal = Portal(self._client.disconnect)

    @property
    def statistics(self) -> Statistics:
        """What became of the calls so far, and whether retrying helped."""
        return self._client.statistics

    @property
    def nodes(self) -> list[str]:
        """The addresses that calls go to: those given, or since a node told the list, those in it."""
        return self._client.nodes

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread. A later call starts both again."""
        self._portal.run(self._client.close())
        self._portal.close()

    def models(self) -> list[str]:
        """The names of ``GET /v1/models``, of the first node that answers. Raises ``ClientError``."""
        return self._portal.run(self._client.models())

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Unpack[CallOptions]) -> TextStream:
        """Stream an answer to ``messages``, each with ``role`` and ``content``; return when it begins.

        Every attempt sends the same bytes. Raises ``Refused``, ``NotReachable``, ``BadReply``, ``DeadlinePassed``.
        """
        return self._begin(self._client.chat(messages, **options))

    def generate(self, prompt: str, **options: Unpack[CallOptions]) -> TextStream:
        """Stream how the model continues ``prompt``, without a chat template. Otherwise as ``chat``."""
        return self._begin(self._client.generate(prompt, **options))

    def draft(self, text: str, *, messages: Sequence[Mapping[str, str]] = (), model: str | None = None) -> None:
        """Somebody is typing ``text``, which will follow ``messages``; the server is to read it meanwhile.

        Returns at once and never raises. Nothing is sent while keys follow each other within 150 ms, and each call
        cancels the one before. For one user's input; ``drafter`` is for several.
        """
        self._portal.call(lambda: self._client.draft(text, messages=messages, model=model))

    def drafter(self, pause_ms: int = 150) -> Drafts:
        """Drafts of one input field; whoever serves several users has one for each."""
        return Drafts(self._portal, self._client.drafter(pause_ms))

    def _begin(self, stream: AsyncTextStream) -> TextStream:
        self._portal.run(stream.open())
        return TextStream(self._portal, stream)


class Drafts:
    """A ``Drafter`` for threads."""

    def __init__(self, portal: Portal, drafter: Drafter) -> None:
        self._portal = portal
        self._drafter = drafter

    def draft(self, text: str, *, messages: Sequence[Mapping[str, str]] = (), model: str | None = None) -> None:
        """As ``Client.draft``."""
        self._portal.call(lambda: self._drafter.draft(text, messages=messages, model=model))

    def cancel(self) -> None:
        """The user has sent the text, or thrown it away."""
        self._portal.call(self._drafter.cancel)
