"""Tests of the guard. A package, so that ``bench/guard.py`` is not taken for this folder."""
