"""``zerolayer sla``: contract and scrape to a page on standard output."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from pathlib import Path

from zerolayer.check.admin import ask_admin
from zerolayer.check.scrape import Scrape
from zerolayer.check.sla import as_html, as_json, markdown, page
from zerolayer.client.address import Patience
from zerolayer.contract import find_file, load

_PATIENCE_S = 10.0


def run(url: str, contract_file: str | None, form: str) -> int:
    """Ask the server at its admin address ``url``, print the page as ``markdown``, ``html`` or ``json``.

    Raises ``ClientError``, ``TargetError``, ``ContractError``.
    """
    contract = load(find_file(contract_file, os.environ, Path()), os.environ, {}).contract
    day = dt.datetime.now(dt.UTC).date().isoformat()
    blocks = page(contract, scraped(url), day)
    sys.stdout.write({"html": as_html, "json": as_json, "markdown": markdown}[form](blocks))
    return 0


def scraped(url: str) -> Scrape:
    """What the server at this admin address measured. Raises ``ClientError``, ``TargetError``."""
    patience = Patience(_PATIENCE_S, None, time.monotonic_ns)
    answer = ask_admin(url, "/metrics", patience).read_all(patience)
    return Scrape(answer.decode("utf-8", "replace"))
