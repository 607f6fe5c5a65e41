"""Rules: one file per family of operations. Importing this package fills :data:`RULES`."""

from tangentlab.kernels.rules import _bag as bag
from tangentlab.kernels.rules import _bilinear as bilinear
from tangentlab.kernels.rules import _convolution as convolution
from tangentlab.kernels.rules import _einsum as einsum
from tangentlab.kernels.rules import _elementwise as elementwise
from tangentlab.kernels.rules import _linear as linear
from tangentlab.kernels.rules import _lookup as lookup
from tangentlab.kernels.rules import _normalization as normalization
from tangentlab.kernels.rules._registry import RULES, TABLE, RuleEntry, rule
from tangentlab.kernels.rules._tied import Tied
from tangentlab.kernels.rules._use import Call, Use, Uses

__all__ = [
    "RULES",
    "TABLE",
    "Call",
    "RuleEntry",
    "Tied",
    "Use",
    "Uses",
    "bag",
    "bilinear",
    "convolution",
    "einsum",
    "elementwise",
    "linear",
    "lookup",
    "normalization",
    "rule",
]
