"""The record of what was served: append-only, hash-chained, one fixed binary record a request (docs/ledger.md)."""
