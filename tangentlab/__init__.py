"""tangentlab: what a neural network's linearization can and cannot say about it."""

from tangentlab._errors import TangentError
from tangentlab._version import __version__

__all__ = ["TangentError", "__version__"]
