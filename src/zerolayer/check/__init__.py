"""Looks at any service from outside; never imports the server's rooms."""
