"""tangentlab: what a neural network's linearization can and cannot say about it."""

from tangentlab import data, linearized, models, tasks, training
from tangentlab._errors import TangentError
from tangentlab._version import __version__
from tangentlab.kernels import NTKOperator, explain, ntk, reference
from tangentlab.linearized import linearize

__all__ = [
    "NTKOperator",
    "TangentError",
    "__version__",
    "data",
    "explain",
    "linearize",
    "linearized",
    "models",
    "ntk",
    "reference",
    "tasks",
    "training",
]
