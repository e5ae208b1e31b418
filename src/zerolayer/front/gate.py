"""Who may ask at all, decided on the headers: no foreign host name, no foreign browser page, no form.

A browser will send requests to 127.0.0.1 for any page. Three checks keep such a page out: the Host header (a name
that was rebound to this machine), the Origin header, and the content type (a form can post text/plain without asking
first, but neither application/json nor application/x-protobuf).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from zerolayer.contract_listen import Listen, is_loopback
from zerolayer.errors import OriginRefused, UnsupportedEncoding, UnsupportedMediaType, ZerolayerError
from zerolayer.wire.http1 import Head

PROTOBUF_MEDIA: Final = b"application/x-protobuf"
_JSON_ONLY: Final = (b"application/json",)
_LOCAL: Final = frozenset({b"localhost", b"127.0.0.1", b"[::1]"})


class Gate(msgspec.Struct, frozen=True):
    """``hosts`` is empty when the listener may be called by any name (not bound to loopback, or insecure).

    ``media`` is what a body at a path may be, JSON alone where the path is not named; the first is the usual one.
    """

    hosts: frozenset[bytes] = frozenset()
    origins: frozenset[bytes] = frozenset()
    media: Mapping[str, tuple[bytes, ...]] = {}

    def check(self, head: Head) -> ZerolayerError | None:
        """The refusal for this head, or None."""
        return self.check_caller(head) or self.check_body(head)

    def check_body(self, head: Head) -> ZerolayerError | None:
        """The refusal of what this head says about its body, or None."""
        if head.method != "POST":
            return None
        media = self.media.get(head.path, _JSON_ONLY)
        return _check_media(head, media, from_browser=head.get(b"origin") is not None)

    def check_caller(self, head: Head) -> ZerolayerError | None:
        """The same without the media type; whoever calls this looks at that himself."""
        host = head.get(b"host")
        # HTTP/1.0 may name no host; every browser does.
        if self.hosts and host is not None and _name_of(host) not in self.hosts:
            return OriginRefused(
                "the host header names another machine than this one; call it as localhost or 127.0.0.1, "
                "or let a proxy in front set the host header so"
            )
        origin = head.get(b"origin")
        if origin is not None and origin not in self.origins and not _same_origin(origin, host):
            return OriginRefused(
                "this browser page may not call the service; its operator can allow one with --cors ORIGIN"
            )
        return None


def local_hosts(bound: str) -> frozenset[bytes]:
    """The names that a listener on the loopback address ``bound`` answers to."""
    name = f"[{bound}]" if ":" in bound else bound
    return _LOCAL | {name.lower().encode("ascii")}


def hosts_of(listen: Listen) -> tuple[frozenset[bytes], frozenset[bytes]]:
    """The host names that the service and its admin listener answer to; empty = any."""
    guarded = is_loopback(listen.host) and not listen.insecure
    return local_hosts(listen.host) if guarded else frozenset(), local_hosts(listen.admin_address[0])


def media_type(content_type: bytes) -> bytes:
    """The type without its parameters, lower-case."""
    return content_type.partition(b";")[0].strip().lower()


def _check_media(head: Head, media: tuple[bytes, ...], *, from_browser: bool) -> ZerolayerError | None:
    content_type = head.get(b"content-type")
    declared = not from_browser if content_type is None else media_type(content_type) in media
    if not declared:
        return UnsupportedMediaType(
            "the content-type of the body is not taken here; send the header content-type: "
            + b" or ".join(media).decode("ascii")
        )
    encoding = head.get(b"content-encoding")
    if encoding is not None and encoding.lower() != b"identity":
        return UnsupportedEncoding("the body must not be compressed; send it without content-encoding")
    return None


def _name_of(host: bytes) -> bytes:
    """Host without port, lower-case; an IPv6 address keeps its brackets (RFC 3986)."""
    host = host.lower()
    if host.startswith(b"["):
        return host[: host.find(b"]") + 1]
    return host.partition(b":")[0]


def _same_origin(origin: bytes, host: bytes | None) -> bool:
    scheme, separator, authority = origin.lower().partition(b"://")
    return bool(separator) and scheme in (b"http", b"https") and host is not None and authority == host.lower()
