"""Accounts: stage stamps, metrics, shares."""
