"""Another model takes the place of the one that is served: its change, what goes along, and the command."""
