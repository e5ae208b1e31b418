"""Finds and places nodes."""
