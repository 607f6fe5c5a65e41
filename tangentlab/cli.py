"""The command line: ``app``, and its entry point ``main``."""

from tangentlab._cli.app import app, main

__all__ = ["app", "main"]

if __name__ == "__main__":
    main()
