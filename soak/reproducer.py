"""A failure as a program of its own: the network, its samples and the property, without the package of tests."""

import ast
import inspect
import sys
import textwrap
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from tests.kernels import properties
from tests.kernels.architectures import Architecture
from tests.kernels.blocks import BLOCKS
from tests.kernels.case import Case

OWN = ("tests.", "soak.")
SPECIAL = ("BLOCKS", "block")


class Program:
    """A collection of the sources that some functions and classes need, in the order of their dependencies."""

    def __init__(self) -> None:
        self.imports: set[str] = set()
        self.parts: dict[str, str] = {}

    def add(self, thing: Any) -> None:
        """Add the source of a function or class, and of all that it names."""
        name = thing.__name__
        if name in self.parts:
            return
        tree = ast.parse(textwrap.dedent(inspect.getsource(thing)))
        definition: Any = tree.body[0]
        definition.decorator_list = [d for d in definition.decorator_list if "block" not in ast.dump(d)]
        self.parts[name] = ""  # holds against circles
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                self._need(node.id, vars(sys.modules[thing.__module__]))
        del self.parts[name]
        self.parts[name] = ast.unparse(tree)

    def _need(self, name: str, names: dict[str, Any]) -> None:
        if name not in names or name in self.parts or name in SPECIAL:
            return
        value = names[name]
        if isinstance(value, ModuleType):
            self.imports.add(f"import {value.__name__}" + (f" as {name}" if name != value.__name__ else ""))
        elif isinstance(value, int | float | str | tuple | list):
            self.parts[name] = f"{name} = {value!r}"
        elif (module := getattr(value, "__module__", "")).startswith(OWN):
            if inspect.isfunction(value) or inspect.isclass(value):
                self.add(value)
        elif module not in ("typing", "collections.abc"):  # those serve annotations alone
            self.imports.add(f"from {module} import {name}")


def brief(description: Any) -> str:
    """Return a description without default values."""
    if isinstance(description, tuple):
        return "(" + ", ".join(map(brief, description)) + ",)"
    if not is_dataclass(description):
        return repr(description)
    plain = {f.name: f.default for f in fields(description)}
    given = {name: value for name, value in vars(description).items() if value != plain[name] and value != {}}
    return f"{type(description).__name__}({', '.join(f'{name}={brief(value)}' for name, value in given.items())})"


def program(architecture: Architecture, name: str, error: str) -> str:
    """Return the source of a program that fails as a property of an architecture did."""
    parts = Program()
    kinds = dict.fromkeys(step.kind for step in architecture.steps)
    for thing in (Architecture, *(BLOCKS[kind].make for kind in kinds), properties.PROPERTIES[name], Case):
        parts.add(thing)
    parts.add(type(BLOCKS[architecture.steps[0].kind]))
    entries = [
        f"{kind!r}: Block({kind!r}, {BLOCKS[kind].make.__name__}, {{}}, {BLOCKS[kind].refusable}, {BLOCKS[kind].fresh})"
        for kind in kinds
    ]
    comment = "\n".join(f"# {line}".rstrip() for line in (*error.splitlines(), "", brief(architecture)))
    tables = f"BLOCKS = {{{', '.join(entries)}}}"
    return "\n\n\n".join(
        [
            f'"""A failure of the property {name!r}."""\n\n{comment}\n\nfrom __future__ import annotations',
            "\n".join(sorted(parts.imports)),
            *parts.parts.values(),
            f"{tables}\nARCHITECTURE = {brief(architecture)}",
            f'if __name__ == "__main__":\n    Case(ARCHITECTURE).check({name})\n    print("right")\n',
        ]
    )
