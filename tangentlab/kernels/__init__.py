"""The kernel engine: network + inputs -> record -> factors -> contract -> kernel."""

from tangentlab.kernels import reference
from tangentlab.kernels._compute import compute_factors, ntk
from tangentlab.kernels._explain import explain
from tangentlab.kernels._operator import NTKOperator
from tangentlab.kernels._sketch import SketchedKernel, sketch

__all__ = ["NTKOperator", "SketchedKernel", "compute_factors", "explain", "ntk", "reference", "sketch"]
