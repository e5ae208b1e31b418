"""Composition: builds model, guard and front, starts them, drains them (``command.py`` is ``zerolayer serve``)."""
