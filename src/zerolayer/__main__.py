"""``python -m zerolayer`` is the ``zerolayer`` command."""

from zerolayer.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
