"""Checks before a release: ``python -m release`` (docs/releasing.md)."""
