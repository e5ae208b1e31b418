"""Looks at any service from outside, as its clients do: measures it, names what it hides, compares two runs."""
