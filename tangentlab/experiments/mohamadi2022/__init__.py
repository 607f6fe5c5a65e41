"""Mohamadi, Bae and Sutherland, 2022: a fast, well-founded approximation to the empirical NTK, the pseudo-NTK."""

from tangentlab.experiments._paper import Paper

PAPER = Paper(
    "mohamadi2022",
    "A fast, well-founded approximation to the empirical neural tangent kernel",
    "Mohamadi, Bae and Sutherland, 2022",
    (
        "_timing",
        "_agreement",
        "_full",
        "_theorem",
    ),
)
