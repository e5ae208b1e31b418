"""Who asks: signed keys, verified offline; ``signing.py`` and ``keys_command.py`` make them, the rest reads them."""
