"""Durations in readable units."""

_UNITS = (
    ("min", 60),
    ("h", 3600),
    ("days", 86400),
    ("weeks", 7 * 86400),
    ("months", 365.25 / 12 * 86400),
    ("years", 365.25 * 86400),
)


def show_seconds(seconds: float) -> str:
    """Format a duration in the largest unit of which there are at least two, or in seconds or milliseconds."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms" if seconds >= 1e-3 or seconds == 0 else "less than 1 ms"
    length, name = 1.0, "s"
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            length, name = size, unit
    number = seconds / length
    return f"{number:,.0f} {name}" if number >= 1000 else f"{number:.1f} {name}"
