"""The shared words of every protocol: schema, bodies, framing. No sockets, no clock, no tensors."""
