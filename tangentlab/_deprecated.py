"""Former names, which still work and say what they are called now (docs/stability.md)."""

import functools
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

_T = TypeVar("_T", bound=Callable[..., Any])

REMOVED_IN = "2.0"
"""The version that no longer has the former names."""


def renamed_names(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a ``__getattr__`` for a package some of whose names have changed.

    Args:
        package: The package, ``__name__``.
        names: The present name by the former one.
    """

    def lookup(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        warn(f"{package}.{name}", f"{package}.{names[name]}")
        return getattr(import_module(package), names[name])

    return lookup


def renamed_arguments(**names: str) -> Callable[[_T], _T]:
    """Let a function or dataclass take arguments by their former names, with a warning.

    Args:
        names: The present name by the former one.
    """

    def decorate(target: _T) -> _T:
        if isinstance(target, type):
            target.__init__ = _translated(target.__init__, target.__qualname__, names)  # type: ignore[misc]
            return target
        return _translated(target, target.__qualname__, names)

    return decorate


def _translated(function: Any, shown: str, names: Mapping[str, str]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for old in names.keys() & kwargs.keys():
            if names[old] in kwargs:
                raise TypeError(f"{shown}() got both {old}= and {names[old]}=, which are one argument")
            warn(f"{old}= of {shown}", f"{names[old]}=")
            kwargs[names[old]] = kwargs.pop(old)
        return function(*args, **kwargs)

    return call


def warn(old: str, new: str) -> None:
    """Warn about a former name, at the line that called the function which calls this one."""
    text = f"{old} is now {new}. The former name will be removed in tangentlab {REMOVED_IN}."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
