"""Decides: who may run, and whether it can start now."""
