"""tangentlab: what a neural network's linearization can and cannot say about it."""

from importlib import import_module
from typing import Any

from tangentlab import analysis, data, engines, linalg, linearized, models, posterior, select, store, tasks, training
from tangentlab._errors import TangentError
from tangentlab._version import __version__
from tangentlab.forecast import predict_training
from tangentlab.kernels import NTKOperator, SketchedKernel, explain, ntk, reference, sketch
from tangentlab.linearized import linearize

# Imported on first use: their dependencies take long to import.
_LATER = {"estimators", "experiments", "explorer", "finetune", "gp", "plot", "report"}

__all__ = [
    "NTKOperator",
    "SketchedKernel",
    "TangentError",
    "__version__",
    "analysis",
    "data",
    "engines",
    "estimators",
    "experiments",
    "explain",
    "explore",
    "explorer",
    "finetune",
    "linalg",
    "linearize",
    "linearized",
    "models",
    "ntk",
    "plot",
    "posterior",
    "predict_training",
    "reference",
    "report",
    "select",
    "sketch",
    "store",
    "tasks",
    "training",
]


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return import_module(f"tangentlab.{name}")
    if name == "explore":
        return import_module("tangentlab.explorer").explore
    raise AttributeError(f"module 'tangentlab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
