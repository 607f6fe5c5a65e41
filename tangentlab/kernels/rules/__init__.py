"""Rules: one small file an operation family. Importing this package fills :data:`RULES`."""

from tangentlab.kernels.rules import _convolution as convolution
from tangentlab.kernels.rules import _elementwise as elementwise
from tangentlab.kernels.rules import _linear as linear
from tangentlab.kernels.rules import _normalization as normalization
from tangentlab.kernels.rules._registry import RULES, TABLE, Entry
from tangentlab.kernels.rules._use import Meeting, Use

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
