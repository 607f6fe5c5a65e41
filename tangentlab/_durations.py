"""Durations as people write them."""

_UNITS = (
    ("min", 60),
    ("h", 3600),
    ("days", 86400),
    ("weeks", 7 * 86400),
    ("months", 365.25 / 12 * 86400),
    ("years", 365.25 * 86400),
)


def show_seconds(seconds: float) -> str:
    """A duration in the largest unit of which there are at least two."""
    length, name = 1.0, "s"
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            length, name = size, unit
    number = seconds / length
    if name == "s" and number < 10:
        return f"{number:.3g} s"
    return f"{number:,.0f} {name}" if number >= 1000 else f"{number:.1f} {name}"
