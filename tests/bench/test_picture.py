"""The README's picture tells what the kept results say."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import picture


def test_the_kept_picture_is_drawn_from_the_kept_results() -> None:
    assert picture.PICTURE.read_text(encoding="utf-8") == picture.picture(), "run python bench/picture.py"


def test_the_picture_is_well_formed_and_has_a_name() -> None:
    assert ET.fromstring(picture.picture()).findtext("{http://www.w3.org/2000/svg}title")
