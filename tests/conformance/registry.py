"""All families."""

from tests.conformance import audio, moe, packages, packages_vision, state_space, text, vision
from tests.conformance.family import Family

FAMILIES: list[Family] = [
    *text.FAMILIES,
    *moe.FAMILIES,
    *state_space.FAMILIES,
    *vision.FAMILIES,
    *audio.FAMILIES,
    *packages.FAMILIES,
    *packages_vision.FAMILIES,
]


def family(name: str) -> Family:
    """By its own name."""
    return next(f for f in FAMILIES if f.name == name)
