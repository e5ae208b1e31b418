"""Receives: sockets, routes; tokens to frames, one write per connection per step."""
