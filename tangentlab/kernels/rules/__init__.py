"""Rules: one small file an operation family. Importing this package fills :data:`RULES`."""

from tangentlab.kernels.rules import convolution, elementwise, linear, normalization
from tangentlab.kernels.rules.registry import RULES, TABLE, Entry
from tangentlab.kernels.rules.use import Meeting, Use

__all__ = [
    "RULES",
    "TABLE",
    "Entry",
    "Meeting",
    "Use",
    "convolution",
    "elementwise",
    "linear",
    "normalization",
]
