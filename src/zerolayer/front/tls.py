"""TLS 1.3 for a listener: certificate, key, and the authority whose clients may come."""

from __future__ import annotations

import logging
import ssl
from typing import Final

import msgspec

from zerolayer.errors import StartupError

_log = logging.getLogger("zerolayer.front")

HANDSHAKE_S: Final = 10.0
SHUTDOWN_S: Final = 2.0  # for the peer's goodbye
_ALPN: Final = ["h2", "http/1.1"]


class TlsFiles(msgspec.Struct, frozen=True):
    """Paths of PEM files. With ``client_ca`` only clients that it has signed a certificate for are let in."""

    certificate: str
    key: str
    client_ca: str = ""


class Tls:
    """``context`` is that of the next connection. Raises ``StartupError`` when the files do not fit."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self.context = _context(files)

    def reload(self) -> bool:
        """Read the files again. Open connections go on; unfit files are told and change nothing. True if they fit."""
        try:
            self.context = _context(self._files)
        except StartupError as error:
            _log.error("the certificate was not reloaded: %s", error.message)
            return False
        _log.info("the certificate was reloaded; it holds for new connections")
        return True


def _context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(_ALPN)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except (OSError, ValueError):
        raise StartupError(
            f"the certificate {files.certificate} and the key {files.key} cannot be used together. Give --certificate "
            "a PEM chain and --key its PEM private key, readable and without a password."
        ) from None
    if files.client_ca:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(files.client_ca)
        except (OSError, ValueError):
            raise StartupError(
                f"the authority {files.client_ca} cannot be read. Give --client-ca a PEM file of certificates."
            ) from None
    return context


def _no_password() -> str:
    """A server has nobody to ask."""
    return ""
