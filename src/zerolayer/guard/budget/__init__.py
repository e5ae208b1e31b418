"""What a key and its tenant may use: rates, requests at once, compute a day; reserved, tightened, settled, released."""
