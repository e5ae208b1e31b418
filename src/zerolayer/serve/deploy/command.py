"""``zerolayer deploy``: asks a running server, over its admin's Unix socket, for another model; shows what happens."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from zerolayer.contract import find_file, load
from zerolayer.contract_paths import has_home, why_missing
from zerolayer.errors import DeployFailed
from zerolayer.front.deploys import PATH, VERSION, News
from zerolayer.serve.admin_place import admin_socket

_BAR: Final = 30
_CONNECT_S: Final = 5.0
_ERROR_BYTES: Final = 1 << 16
_LOST: Final = "the server ended before the new model was served; see its log"

_news = msgspec.json.Decoder(News)


class _Local(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_CONNECT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))
        self.sock.settimeout(None)  # loading takes as long as it takes


def deploy(model: str, place: Path | None, *, as_json: bool) -> int:
    """Ask the server at ``place`` for ``model``, and print the news; the exit code. Raises ``DeployFailed``."""
    if place is None:
        raise DeployFailed("a server on a port of the system's choice has no admin socket by itself; name it: --socket")
    connection = _Local(place)
    show = _show_json if as_json else _Lines().show
    news: News | None = None
    try:
        for news in _ask(connection, _named(model)):
            show(news)
        if news is None or not news.last:
            raise DeployFailed(_LOST)
    except KeyboardInterrupt:
        print("\nzerolayer: called off; before the new model answers the old one is served on", file=sys.stderr)
        raise
    except (OSError, http.client.HTTPException):
        if news is not None:
            raise DeployFailed(_LOST) from None
        raise DeployFailed(
            f"no server answers at {place}. Run this as the user of the server, and give --port or --socket as it has"
        ) from None
    finally:
        connection.close()
    return 0 if news.phase == "done" else 1


def admin_of(contract_file: str | None, port: str | None) -> Path | None:
    """Where the server of this contract and port listens for its admin. Raises ``ContractError``."""
    given = {} if port is None else {"port": port}
    contract = load(find_file(contract_file, os.environ, Path()), os.environ, given).contract
    return admin_socket(contract, os.environ)


def _named(given: str) -> str:
    """A path as the server finds it, whose working directory is another one; any other name as it is."""
    if not has_home(given):
        return given
    path = Path(given).expanduser()
    return given if why_missing(path) else str(path.absolute())


def _ask(connection: http.client.HTTPConnection, model: str) -> Iterator[News]:
    """The news, as they come. Raises ``DeployFailed`` for a refusal."""
    body = json.dumps({"model": model})
    connection.request("POST", PATH, body, {"content-type": "application/json"})
    reply = connection.getresponse()
    if reply.status != 200:
        raise DeployFailed(_why(reply.read(_ERROR_BYTES)))
    while line := reply.readline():
        news = _news.decode(line)
        if news.version > VERSION:
            raise DeployFailed("the server is of a newer version than this command; use its own")
        yield news


def _why(body: bytes) -> str:
    """The message of an error reply."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "the server refused and did not say why; see its log"


def _show_json(news: News) -> None:
    print(msgspec.json.encode(news).decode(), flush=True)


class _Lines:
    """One line for each phase, with a bar that grows in place where a person looks."""

    def __init__(self) -> None:
        self._in_place = sys.stdout.isatty()
        self._shown = ("", -1)  # phase, and how much of its bar

    def show(self, news: News) -> None:
        """Print what is new."""
        if news.phase == "failed":
            self._print(f"failed  {news.text}", ends=True)
            print(f"zerolayer: {news.model} is served on", file=sys.stderr)
        elif news.of:
            filled = _BAR * news.done // news.of
            step = filled if self._in_place else filled // (_BAR // 3)
            if (news.phase, step) != self._shown:
                self._shown = (news.phase, step)
                bar = f"[{'#' * filled}{'.' * (_BAR - filled)}] {100 * news.done // news.of:3d} %"
                self._print(f"{news.phase:<7} {bar} {news.text}", ends=not self._in_place)
        else:
            self._print(f"{news.phase:<7} {news.text} ({news.seconds:.1f} s)", ends=True)

    def _print(self, line: str, *, ends: bool) -> None:
        clear = "\r\x1b[K" if self._in_place else ""
        print(clear + line, end="\n" if ends else "", flush=True)
