"""Sends: a client that installs without the server's needs."""
