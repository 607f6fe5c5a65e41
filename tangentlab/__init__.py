"""tangentlab: what a neural network's linearization can and cannot say about it.

What is public, and what a new version may change, is in docs/stability.md: the names in ``__all__`` here and in the
packages below. Packages are imported on first use, so that a program waits only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tangentlab._errors import TangentError
from tangentlab._version import __version__

if TYPE_CHECKING:
    from tangentlab import (
        analysis,
        attribution,
        data,
        engines,
        estimators,
        experiments,
        explorer,
        finetune,
        forecast,
        gp,
        kernels,
        linalg,
        linearized,
        models,
        plot,
        posterior,
        report,
        select,
        solvers,
        store,
        tasks,
        training,
    )
    from tangentlab.explorer import explore
    from tangentlab.forecast import predict_training
    from tangentlab.kernels import NTKOperator, SketchedKernel, explain, ntk, reference, sketch
    from tangentlab.linearized import linearize

# The package that defines a name which is also here.
_DEFINED_IN = {
    "NTKOperator": "kernels",
    "SketchedKernel": "kernels",
    "explain": "kernels",
    "explore": "explorer",
    "linearize": "linearized",
    "ntk": "kernels",
    "predict_training": "forecast",
    "reference": "kernels",
    "sketch": "kernels",
}

__all__ = [
    "NTKOperator",
    "SketchedKernel",
    "TangentError",
    "__version__",
    "analysis",
    "attribution",
    "data",
    "engines",
    "estimators",
    "experiments",
    "explain",
    "explore",
    "explorer",
    "finetune",
    "forecast",
    "gp",
    "kernels",
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
    "solvers",
    "store",
    "tasks",
    "training",
]


def __getattr__(name: str) -> Any:
    """Import a package, or the package that defines a function, when it is used for the first time."""
    if name in _DEFINED_IN:
        value = getattr(import_module(f"tangentlab.{_DEFINED_IN[name]}"), name)
    elif name in __all__:
        value = import_module(f"tangentlab.{name}")
    else:
        raise AttributeError(f"module 'tangentlab' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
