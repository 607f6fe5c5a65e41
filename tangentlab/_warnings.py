"""Warnings on the command line: what they say, without a place in the code."""

import warnings
from pathlib import Path

_PACKAGE = str(Path(__file__).parent)
_usual = warnings.formatwarning


def show_plainly(wanted: bool = True) -> None:
    """Show warnings of the library as one line of text in this process; those of others as usual."""
    if wanted:
        warnings.formatwarning = _plain


def shown_plainly() -> bool:
    """Return whether this process does, for the processes that it starts."""
    return warnings.formatwarning is _plain


def _plain(message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None) -> str:
    if not filename.startswith(_PACKAGE):
        return _usual(message, category, filename, lineno, line)
    return f"Warning: {message}\n"
