"""What a user may have meant by a misspelled name."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(word: object, names: Iterable[str], most: int = 1, cutoff: float = 0.5) -> str:
    """Return "Did you mean 'name'? " for the names closest to a word, or an empty text if none is close.

    Args:
        word: What was written; upper and lower case are the same.
        names: The names there are.
        most: The largest number of names to suggest.
        cutoff: How close a name must be, from 0 to 1 (``difflib.get_close_matches``).
    """
    by_lower = {name.lower(): name for name in names}
    close = [by_lower[name] for name in get_close_matches(str(word).lower(), by_lower, n=most, cutoff=cutoff)]
    return f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
