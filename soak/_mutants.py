"""Mutants of a Python module: the same program with one small error (:mod:`soak._operators`).

What cannot change a number is left alone: docstrings and other strings, annotations, imports, assertions, and
the words of an error.
"""

import ast
import copy
import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from soak._operators import replacements

Step = tuple[str, int | None]
"""From a node to a child: the field, and the position where the field is a list."""


@dataclass(frozen=True)
class Mutant:
    """One change of one module.

    Attributes:
        id: The same for the same change of the same function, wherever the function is in its file.
        line: Where it is.
        statement: The first line of the innermost statement that it is in.
        scope: First and last line of the function that it is in, with arguments and decorators, or None.
        body: Whether it is in the body of that function, so that it runs when the function does.
        operator: The kind of change.
        path: The way from the module to the node that is replaced.
        node: What it is replaced by.
    """

    id: str
    line: int
    statement: int
    scope: tuple[int, int] | None
    body: bool
    operator: str
    path: tuple[Step, ...]
    node: ast.AST

    def apply(self, source: str) -> ast.Module:
        """Return the mutated module."""
        tree = ast.parse(source)
        at: Any = tree
        for name, index in self.path[:-1]:
            at = getattr(at, name) if index is None else getattr(at, name)[index]
        name, index = self.path[-1]
        if index is None:
            setattr(at, name, copy.deepcopy(self.node))
        else:
            getattr(at, name)[index] = copy.deepcopy(self.node)
        return ast.fix_missing_locations(tree)

    def diff(self, source: str) -> str:
        """Return the change, as lines with - and +."""
        before, after = (ast.unparse(tree).splitlines() for tree in (ast.parse(source), self.apply(source)))
        return "\n".join(list(difflib.unified_diff(before, after, lineterm="", n=1))[2:])


def digest(source: str) -> str:
    """Return a module's identity: a hash of its syntax tree, so that comments and layout do not matter."""
    return hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()[:16]


def mutants(source: str) -> list[Mutant]:
    """Return all mutants of a module, in the order of its lines."""
    found: list[Mutant] = []
    seen: Counter[str] = Counter()
    for place in _walk(_Place(ast.parse(source))):
        before = place.text(place.node)
        for operator, replacement in replacements(place.node, place.parent, place.function):
            after = place.text(replacement)
            if after == before:
                continue
            name = f"{place.qualname}: {operator}: {before} -> {after}"
            seen[name] += 1
            number = f" #{seen[name]}" if seen[name] > 1 else ""
            line = getattr(place.node, "lineno", getattr(place.parent, "lineno", 0))
            where = line, place.statement, place.scope, place.body
            found.append(Mutant(name + number, *where, operator, place.path, replacement))
    return sorted(found, key=lambda mutant: mutant.line)


@dataclass(frozen=True)
class _Place:
    """A node with its surroundings."""

    node: ast.AST
    parent: ast.AST | None = None
    path: tuple[Step, ...] = ()
    qualname: str = "<module>"
    statement: int = 0
    scope: tuple[int, int] | None = None
    body: bool = False
    function: ast.FunctionDef | None = None

    def text(self, node: ast.AST) -> str:
        """Return the text at this place with ``node`` in it; a constant is shown with its surroundings."""
        if isinstance(self.node, ast.Constant) and self.parent is not None:
            around, (name, index) = copy.deepcopy(self.parent), self.path[-1]
            if index is None:
                setattr(around, name, node)
            else:
                getattr(around, name)[index] = node
            node = around
        return ast.unparse(ast.fix_missing_locations(node)).partition("\n")[0]

    def child(self, node: ast.AST, step: Step) -> "_Place":
        """Return the place of a node below this one."""
        name, scope, body, function = self.qualname, self.scope, self.body, self.function
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            name = node.name if name == "<module>" else f"{name}.{node.name}"
        if isinstance(self.node, ast.FunctionDef):
            first = min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])
            scope = (first, self.node.end_lineno or first)
            if step[0] == "body":
                body, function = True, self.node
        statement = node.lineno if isinstance(node, ast.stmt) else self.statement
        return _Place(node, self.node, (*self.path, step), name, statement, scope, body, function)


def _walk(place: _Place) -> Iterator[_Place]:
    """Yield every node below a place that may be mutated."""
    for field, value in ast.iter_fields(place.node):
        if field in ("annotation", "returns", "type_params"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _without_effect(child):
                continue
            below = place.child(child, (field, index))
            yield below
            if not isinstance(child, ast.Raise):  # the words of an error
                yield from _walk(below)


def _without_effect(node: ast.AST) -> bool:
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Assert, ast.JoinedStr, ast.expr_context)):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    if isinstance(node, ast.If) and ast.unparse(node.test).startswith(("__name__", "TYPE_CHECKING")):
        return True
    if isinstance(node, (ast.Call, ast.Name)) and ast.unparse(node).startswith("dataclass"):
        return True
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
