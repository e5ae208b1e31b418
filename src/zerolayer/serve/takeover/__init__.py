"""A new process takes the service over from an old one: sockets, promises, budgets, ledger."""
