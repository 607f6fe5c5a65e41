"""Jacobian factors: the small per-sample tensors that kernel tiles are computed from, one form per file.

A family of operations whose gradients need another form has its own factor next to its rules.
"""

from tangentlab.kernels.factors._base import Factor, tidy
from tangentlab.kernels.factors._direct import Direct
from tangentlab.kernels.factors._factors import Factors, Key
from tangentlab.kernels.factors._hadamard import Hadamard
from tangentlab.kernels.factors._pairs import Pairs
from tangentlab.kernels.factors._sum import PairsSum, Terms
from tangentlab.kernels.factors._total import Total

__all__ = ["Direct", "Factor", "Factors", "Hadamard", "Key", "Pairs", "PairsSum", "Terms", "Total", "tidy"]
