"""Samarin, Roth and Belius, 2022: feature learning and random features in standard finite-width CNNs."""

from tangentlab.experiments._paper import Paper

PAPER = Paper(
    "samarin2022",
    "Feature learning and random features in standard finite-width convolutional neural networks",
    "Samarin, Roth and Belius, 2022",
    (
        "_widths",
        "_ranks",
        "_tables",
        "_trajectories",
    ),
)
