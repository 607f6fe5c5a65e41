"""The errors that mutants make: for a node of a syntax tree, what a typing error could have put in its place."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Place:
    """A node, the node that it belongs to, and the function that it is in."""

    node: ast.AST
    parent: ast.AST | None
    function: ast.FunctionDef | None


Replacements = Iterator[tuple[str, Any]]


def replacements(node: ast.AST, parent: ast.AST | None, function: ast.FunctionDef | None) -> Replacements:
    """Yield what could take the place of a node by mistake, each with the kind of mistake.

    Args:
        node: The node.
        parent: The node that it belongs to.
        function: The function that it is in.
    """
    place = Place(node, parent, function)
    for kind, operator in _OPERATORS:
        if isinstance(node, kind):
            yield from operator(copy.deepcopy(node), place)


_ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Div,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_EVEN = {"abs", "norm", "square"}
"""Functions that do not see a sign."""
_ORDERED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult)


def _arithmetic(node: ast.BinOp, place: Place) -> Replacements:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None:
        yield "arithmetic", ast.BinOp(node.left, other(), node.right)
    around = place.parent.func if isinstance(place.parent, ast.Call) else place.parent
    name = around.attr if isinstance(around, ast.Attribute) else getattr(around, "id", "")
    if isinstance(node.op, _ORDERED) and not (isinstance(node.op, ast.Sub) and name in _EVEN):
        yield "operands swapped", ast.BinOp(node.right, node.op, node.left)


def _in_place(node: ast.AugAssign, _: Place) -> Replacements:
    other = _ARITHMETIC.get(type(node.op))
    if other is not None:
        yield "arithmetic", ast.AugAssign(node.target, other(), node.value)
    yield "assigned instead", ast.Assign([node.target], node.value)


def _unary(node: ast.UnaryOp, _: Place) -> Replacements:
    if isinstance(node.op, (ast.USub, ast.Not)):
        yield "sign or negation removed", node.operand


_BOUNDARY = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_NEGATED = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def _comparison(node: ast.Compare, _: Place) -> Replacements:
    for name, table in (("boundary", _BOUNDARY), ("comparison negated", _NEGATED)):
        for i, op in enumerate(node.ops):
            if type(op) in table:
                yield (
                    name,
                    ast.Compare(node.left, [*node.ops[:i], table[type(op)](), *node.ops[i + 1 :]], node.comparators),
                )


def _boolean(node: ast.BoolOp, _: Place) -> Replacements:
    yield "and for or", ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values)
    for i in range(len(node.values)):
        rest = node.values[:i] + node.values[i + 1 :]
        yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _constant(node: ast.Constant, _: Place) -> Replacements:
    value = node.value
    if isinstance(value, bool):
        yield "constant", ast.Constant(not value)
    elif isinstance(value, int):
        yield "constant", ast.Constant(value + 1)
        yield "constant", ast.Constant(value - 1)
    elif isinstance(value, float):
        yield "constant", ast.Constant(value * 2 if value else 1.0)
        if value:
            yield "constant", ast.Constant(value / 2)


def _branch(node: ast.If | ast.IfExp, _: Place) -> Replacements:
    for taken in (True, False):
        other = copy.deepcopy(node)
        other.test = ast.Constant(taken)
        yield f"branch {'always' if taken else 'never'} taken", other


def _loop(node: ast.While | ast.For, _: Place) -> Replacements:
    for statement in ast.walk(node):
        if isinstance(statement, (ast.Yield, ast.YieldFrom)):
            return  # without its loop it is no generator any more
    yield "loop removed", ast.Pass()


def _filter(node: ast.comprehension, _: Place) -> Replacements:
    for i in range(len(node.ifs)):
        yield (
            "filter removed",
            ast.comprehension(node.target, node.iter, node.ifs[:i] + node.ifs[i + 1 :], node.is_async),
        )


def _statement(node: ast.stmt, place: Place) -> Replacements:
    if isinstance(node, ast.Assign) and not all(_bound_before(target, place) for target in node.targets):
        return  # a name would be missing, which every test notices
    yield "statement removed", ast.Pass()


def _bound_before(target: ast.expr, place: Place) -> bool:
    """Return whether a target has a value without this assignment."""
    if not isinstance(target, ast.Name):
        return isinstance(target, (ast.Attribute, ast.Subscript))
    if place.function is None:
        return False
    line = getattr(place.node, "lineno", 0)
    names = {argument.arg for argument in ast.walk(place.function.args) if isinstance(argument, ast.arg)}
    for node in ast.walk(place.function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.lineno < line:
            names.add(node.id)
    return target.id in names


def _return(node: ast.Return, place: Place) -> Replacements:
    if node.value is None or place.function is None:
        return
    if not (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "returns None", ast.Return(ast.Constant(None))
    others = {
        ast.unparse(other.value): other.value
        for other in ast.walk(place.function)
        if isinstance(other, ast.Return) and other.value is not None
    }
    for text, value in others.items():
        if text not in ("None", ast.unparse(node.value)):
            yield "returns another", ast.Return(copy.deepcopy(value))


_SYMMETRIC = {"min", "max", "minimum", "maximum", "addcmul_", "equal", "isinstance", "transpose"}
"""Functions that do the same, or nothing sensible, when their arguments are exchanged."""
_OPPOSITE = {"max": "min", "min": "max", "any": "all", "all": "any", "amax": "amin", "amin": "amax"}


def _call(node: ast.Call, _: Place) -> Replacements:
    plain = [a for a in node.args if not isinstance(a, ast.Starred)]
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if len(plain) == len(node.args) and name not in _SYMMETRIC:
        for i in range(len(plain) - 1):
            swapped = [*plain[:i], plain[i + 1], plain[i], *plain[i + 2 :]]
            yield "arguments swapped", ast.Call(node.func, swapped, node.keywords)
    for i in range(len(node.keywords)):
        if node.keywords[i].arg != "strict":  # an assertion
            yield "keyword removed", ast.Call(node.func, node.args, node.keywords[:i] + node.keywords[i + 1 :])
    if name in _OPPOSITE:
        func = copy.deepcopy(node.func)
        if isinstance(func, ast.Attribute):
            func.attr = _OPPOSITE[name]
        elif isinstance(func, ast.Name):
            func.id = _OPPOSITE[name]
        yield "opposite function", ast.Call(func, node.args, node.keywords)
    if isinstance(node.func, ast.Attribute) and not _is_module(node.func.value):
        yield "method not called", node.func.value


def _is_module(node: ast.expr) -> bool:
    """Return whether a name refers to a module or a class rather than to a value."""
    root = node
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and (
        root.id in {"torch", "F", "np", "math", "self", "cls", "super"} or root.id[0].isupper()
    )


_TRANSPOSES = {"T", "mT", "H", "mH"}


def _attribute(node: ast.Attribute, _: Place) -> Replacements:
    if node.attr in _TRANSPOSES:
        yield "transpose removed", node.value


def _slice(node: ast.Slice, _: Place) -> Replacements:
    if node.lower is not None:
        yield "bound removed", ast.Slice(None, node.upper, node.step)
    if node.upper is not None:
        yield "bound removed", ast.Slice(node.lower, None, node.step)
    if node.step is not None:
        yield "bound removed", ast.Slice(node.lower, node.upper, None)


def _collection(node: ast.Tuple | ast.List | ast.Set, place: Place) -> Replacements:
    listed = not isinstance(node, ast.Tuple) or isinstance(
        place.parent, (ast.Starred, ast.Compare, ast.For, ast.comprehension)
    )
    stored = isinstance(getattr(node, "ctx", None), ast.Store)
    if not listed or stored or len(node.elts) < 2:  # one number too few to unpack is noticed by every test
        return
    for i in range(len(node.elts)):
        rest = copy.deepcopy(node)
        del rest.elts[i]
        yield "element removed", rest


_OPERATORS: list[tuple[Any, Callable[..., Replacements]]] = [
    (ast.BinOp, _arithmetic),
    (ast.AugAssign, _in_place),
    (ast.UnaryOp, _unary),
    (ast.Compare, _comparison),
    (ast.BoolOp, _boolean),
    (ast.Constant, _constant),
    ((ast.If, ast.IfExp), _branch),
    ((ast.While, ast.For), _loop),
    (ast.comprehension, _filter),
    ((ast.Expr, ast.Assign, ast.AugAssign, ast.Raise, ast.Delete, ast.Continue, ast.Break), _statement),
    (ast.Return, _return),
    (ast.Call, _call),
    (ast.Attribute, _attribute),
    (ast.Slice, _slice),
    ((ast.Tuple, ast.List, ast.Set), _collection),
]
