"""Factors: the small per-sample pieces from pairs of which kernel tiles are made, one form a file."""

from tangentlab.kernels.factors.base import Factor
from tangentlab.kernels.factors.direct import Direct
from tangentlab.kernels.factors.hadamard import Hadamard
from tangentlab.kernels.factors.pairs import ConvolutionPairs, LinearPairs, LookupPairs, Pairs

__all__ = ["ConvolutionPairs", "Direct", "Factor", "Hadamard", "LinearPairs", "LookupPairs", "Pairs"]
