"""tangentlab: what a neural network's linearization can and cannot say about it."""

from tangentlab import data, models, tasks
from tangentlab._errors import TangentError
from tangentlab._version import __version__
from tangentlab.kernels import NTKOperator, explain, ntk, reference

__all__ = ["NTKOperator", "TangentError", "__version__", "data", "explain", "models", "ntk", "reference", "tasks"]
