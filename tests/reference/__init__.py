"""What the tests measure the server against: an independent float32 forward, tiny models, and a plain scheduler."""
