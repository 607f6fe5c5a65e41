"""Packages that only some features need, and that are installed by extras."""

import importlib
from typing import Any

from tangentlab._errors import TangentError


def require(module: str, package: str, extra: str, why: str, otherwise: str = "") -> Any:
    """Import a module of an extra.

    Args:
        module: The module.
        package: The name under which users know what it belongs to.
        extra: The extra that installs it.
        why: What needs it, a sentence.
        otherwise: What does the same without the package, to follow "Run pip install ...".

    Raises:
        TangentError: It is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise missing(package, extra, why, otherwise) from error


def missing(package: str, extra: str, why: str, otherwise: str = "") -> TangentError:
    """Return the error that names the extra; arguments as for :func:`require`."""
    return TangentError(f"{package} is not installed.", why, f"Run pip install 'tangentlab[{extra}]'{otherwise}.")
