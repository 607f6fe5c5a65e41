"""Factors: the small per-sample pieces from pairs of which kernel tiles are made, one form a file."""

from tangentlab.kernels.factors._base import Factor
from tangentlab.kernels.factors._direct import Direct
from tangentlab.kernels.factors._hadamard import Hadamard
from tangentlab.kernels.factors._pairs import ConvolutionPairs, LinearPairs, LookupPairs, Pairs
from tangentlab.kernels.factors._total import Total

__all__ = ["ConvolutionPairs", "Direct", "Factor", "Hadamard", "LinearPairs", "LookupPairs", "Pairs", "Total"]
