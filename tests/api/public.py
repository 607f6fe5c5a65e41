"""The public interface as text: every public name of every package, with its kind, its arguments and its members.

``python -m tests.api.public > tests/api/public.txt`` writes the list that the test compares with.
"""

import dataclasses
import enum
import inspect
from importlib import import_module
from types import ModuleType
from typing import Any

import tangentlab

_OF_OBJECT = set(dir(object))


def packages() -> list[str]:
    """Return the packages that are public: those which ``tangentlab.__all__`` names."""
    names = [name for name in tangentlab.__all__ if isinstance(getattr(tangentlab, name), ModuleType)]
    return ["tangentlab", *sorted(f"tangentlab.{name}" for name in names if name != "reference")]


def arguments(function: Any) -> str:
    """Return the arguments of a function, without types: names, order, and whether they may be left out."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return "(...)"
    if any(parameter.name.startswith("_") for parameter in parameters):
        return "(...)"  # a result, which only tangentlab creates
    shown, star = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
            star = True
        star = star or parameter.kind is parameter.VAR_POSITIONAL
        prefix = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        optional = "" if parameter.default is parameter.empty else "="
        shown.append(f"{prefix}{parameter.name}{optional}")
    return f"({', '.join(shown)})"


def members(kind: type) -> list[str]:
    """Return the public members that classes of tangentlab give a class; those of PyTorch or SciPy are not ours."""
    ours = [base for base in kind.__mro__ if base.__module__.startswith("tangentlab")]
    fields = (
        {field.name for field in dataclasses.fields(kind) if field.name[0] != "_"}
        if dataclasses.is_dataclass(kind)
        else set()
    )
    found = {name for base in ours for name in vars(base) if not name.startswith("_")} | fields
    lines = []
    for name in sorted(found):
        value = inspect.getattr_static(kind, name, None)
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        lines.append(f"{name}{arguments(function)}" if inspect.isfunction(function) else name)
    return lines


def lines(package: str) -> list[str]:
    """Return the lines of one package."""
    module = import_module(package)
    found = []
    for name in sorted(module.__all__):
        value, full = getattr(module, name), f"{package}.{name}"
        if isinstance(value, type):
            kind = "enum" if issubclass(value, enum.Enum) else "class"
            found.append(f"{kind} {full}" + ("" if kind == "enum" else arguments(value)))
            found += [f"  {full}.{member}" for member in members(value)]
        elif callable(value):
            found.append(f"function {full}{arguments(value)}")
        else:
            found.append(f"{'module' if isinstance(value, ModuleType) else 'value'} {full}")
    return found


def text() -> str:
    """Return the whole list."""
    return "\n".join(line for package in packages() for line in lines(package)) + "\n"


if __name__ == "__main__":
    print(text(), end="")
