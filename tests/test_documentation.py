"""The documentation leads somewhere: every file, test, page and heading that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "bench" / "README.md"])
ROOTS = (ROOT, ROOT / "src" / "zerolayer", ROOT / "bench", ROOT / "docs", ROOT / "tests")
SCRIPTS = [*(ROOT / "tests").rglob("*.py")]
FUNCTIONS = (re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8")) for path in SCRIPTS)
TESTS = {path.stem for path in SCRIPTS}.union(*FUNCTIONS)
FILE = re.compile(r"`([a-z0-9_./-]+/[a-z0-9_.-]+\.(?:py|hpp|cpp|sh|proto|yml|service))(?::[0-9]+)?`")
TEST = re.compile(r"`(test_[a-z0-9_]+)`")
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HISTORY = "CHANGELOG.md"  # what it tells of may be gone


def headings(page: Path) -> set[str]:
    """What a link may end with: headings as they are on GitHub, and anchors."""
    text = page.read_text(encoding="utf-8")
    titles = (title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w-]", "", title) for title in titles} | set(re.findall(r'<a id="([^"]+)"', text))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_has_its_page_and_its_heading(page: Path) -> None:
    for target, heading in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in target:
            found = page.parent / target if target else page
            assert found.exists(), target
            assert not heading or heading in headings(found), f"{target}#{heading}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != HISTORY], ids=lambda page: page.name)
def test_every_file_and_test_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = [name for name in FILE.findall(text) if not any((root / name).exists() for root in ROOTS)]
    gone += [name for name in TEST.findall(text) if name not in TESTS]
    assert gone == []
