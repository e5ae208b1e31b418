"""Chromium opens the live page of a server under load: no word on its console, no overlap, everything by keyboard."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "front"))

from chromium import Chromium
from echo_model import EchoEngine, LastMessage
from echo_service import Service, chat

from zerolayer.guard.auth.key_files import KEY_SET
from zerolayer.guard.auth.signing import KeyFolder, Wish
from zerolayer.guard.identity import Quota

pytestmark = pytest.mark.judge

_OVERLAPS = """(() => {
  const all = [...document.querySelectorAll('h1,h2,h3,dt,dd,td,th,p,button,label,canvas,.bar')]
    .filter(e => e.getClientRects().length && getComputedStyle(e).position !== 'absolute');
  const wrong = [];
  for (const a of all) for (const b of all) {
    if (a === b || a.contains(b) || b.contains(a)) continue;
    const r = a.getBoundingClientRect(), s = b.getBoundingClientRect();
    if (r.left < s.right - 1 && s.left < r.right - 1 && r.top < s.bottom - 1 && s.top < r.bottom - 1)
      wrong.push(a.outerHTML.slice(0, 60) + ' / ' + b.outerHTML.slice(0, 60));
  }
  return wrong;
})()"""
_CUT = """[...document.querySelectorAll('h1,h2,h3,dt,dd,td,th,p,button,label')]
  .filter(e => e.getClientRects().length && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


TENANTS = {"acme": Quota(requests_per_minute=30), "research-department": Quota(tokens_per_minute=1_000_000)}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with keys and more load than it can take, for as long as the tests run."""
    folder, now = KeyFolder(tmp_path_factory.mktemp("keys") / "keys"), int(time.time())
    folder.create(now)
    keys = [folder.issue(Wish(tenant, now + 10_000, quota=quota), now)[0] for tenant, quota in TENANTS.items()]
    engine = EchoEngine(slots=4, slot_tokens=512, chunk_tokens=64, step_us=4000)
    flags = {"slots": "4", "slot-tokens": "512", "key-set": str(folder.folder / KEY_SET)}
    service = Service(flags, engine, None, 0.25, {}, {}, LastMessage)
    over = threading.Event()

    def ask(key: str) -> None:
        while not over.is_set():
            service.ask(chat("hello " * 20, f"authorization: Bearer {key}", max_tokens=60))
            over.wait(0.05)

    clients = [threading.Thread(target=ask, args=(key,)) for key in keys * 3]
    for client in clients:
        client.start()
    yield service
    over.set()
    for client in clients:
        client.join()
    service.close()


@pytest.fixture(scope="module")
def page(
    service: Service, tool: Callable[[str, str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Chromium]:
    program = tool("chromium", "apt-get install chromium")
    browser = Chromium(program, tmp_path_factory.mktemp("chromium"))
    browser.call("Page.navigate", url=f"http://127.0.0.1:{service.server.admin_port}/")
    browser.wait_for("document.getElementById('programs')?.querySelectorAll('.meter').length > 0")
    browser.wait_for("document.getElementById('tenants').rows.length >= 3 && budgets.length > 0")
    yield browser
    browser.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 768, 1024, 1440])
def test_nothing_overlaps_and_nothing_is_cut(page: Chromium, width: int, scheme: str) -> None:
    page.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.wait_for(f"innerWidth <= {width}")
    assert page.evaluate(_OVERLAPS) == []
    assert page.evaluate(_CUT) == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("name", ["wall", "stages"])
def test_the_shares_sum_to_a_hundred(page: Chromium, name: str) -> None:
    page.wait_for(f"document.querySelector('#l-{name} td').textContent.includes('%')")
    told = page.evaluate(f"[...document.querySelectorAll('#l-{name} tr')].map(r => parseFloat(r.cells[1].textContent))")
    assert round(sum(told), 1) == 100.0


def test_what_the_page_shows_is_what_happens(page: Chromium) -> None:
    page.wait_for("Number(document.getElementById('f-tokens').textContent) > 0")
    page.wait_for("document.getElementById('calendar').getAttribute('aria-label').includes('of 4 slots run')")
    page.wait_for("[...document.querySelectorAll('#refused th')].some(e => e.textContent === 'slots busy')")


def test_every_tenant_has_its_share_and_all_of_them_sum_to_a_hundred(page: Chromium) -> None:
    rows = page.evaluate(
        "[...document.querySelectorAll('#tenants tr')].map(r => [r.dataset.key, r.cells[1].textContent])"
    )
    assert {name for name, _ in rows} == {*TENANTS, "_idle"}
    assert sum(float(share.split()[0]) for _, share in rows) == pytest.approx(100, abs=0.2)


def test_a_budget_that_is_used_up_is_told_so(page: Chromium) -> None:
    page.wait_for("document.getElementById('full').textContent.includes('used up')")
    first = "document.querySelector('#budgets tr')"
    assert page.evaluate(f"{first}.cells[0].textContent").startswith("acme ")
    assert page.evaluate(f"{first}.cells[1].textContent") == "30 of 30"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(page: Chromium, scheme: str) -> None:
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    light = """(name => { const hex = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
      const [r, g, b] = [1, 3, 5].map(i => parseInt(hex.slice(i, i + 2), 16) / 255)
        .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
      return 0.2126 * r + 0.7152 * g + 0.0722 * b; })"""  # WCAG 2.2, relative luminance
    for ink in ("--ink", "--soft", "--accent-ink", "--bad"):
        for ground in ("--card", "--ground"):
            low, high = sorted([page.evaluate(f"{light}('{ink}')"), page.evaluate(f"{light}('{ground}')")])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_a_keyboard_reaches_everything(page: Chromium) -> None:
    page.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(7):
        page.press("Tab", 9)
        reached.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.name || document.activeElement.textContent"
            )
        )
    assert reached[:2] == ["Skip to the figures", "pause"]
    assert {"heat", "Metrics", "Ready?"} <= set(reached)


def test_a_key_pauses_the_page_and_lets_it_go_on(page: Chromium) -> None:
    page.evaluate("document.getElementById('pause').focus()")
    page.press(" ", 32)
    page.wait_for("document.getElementById('state').textContent === 'paused'")
    page.press(" ", 32)
    page.wait_for("document.getElementById('state').textContent === 'live'")


def test_the_browser_had_nothing_to_say(page: Chromium) -> None:
    page.evaluate("1")
    assert page.troubles == []
