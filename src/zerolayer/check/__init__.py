"""Looks at any service from outside, as its clients do; never imports the server's rooms."""
