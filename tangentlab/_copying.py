"""Copies of models that compute what the models compute, or a refusal.

``copy.deepcopy`` copies what a model *holds*: parameters, buffers, submodules, containers, bound methods, partials. It
shares functions, and with them whatever they close over. A forward hook ``lambda m, a, out: out * model.gain`` keeps
using the original's gain: the copy's own has no gradient and does not follow a change of precision. Everything that
can be reached from a copy is therefore searched, and a copy that reaches a tensor or a module of the original is
refused.
"""

import copy
import dis
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._layouts import parts_of

_REMEDY = (
    "Let hooks and functions use their arguments (a hook's first argument is its layer), or make them methods of a "
    "module; for another dtype or device, convert the model yourself."
)


def check_place(dtype: Any, device: Any) -> torch.device | None:
    """Return the device, or None if none is given; refuse a precision or a device that nothing can be computed in.

    Raises:
        TangentError: The dtype is not one of real numbers, or there is no such device.
    """
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype.is_floating_point):
        raise TangentError(
            f"The dtype is {dtype}.", "Gradients need real numbers.", "Pass torch.float32 or torch.float64."
        )
    if device is None:
        return None
    remedy = 'Pass "cpu", or install a PyTorch build that supports the device (pytorch.org/get-started).'
    try:
        found = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, TypeError) as error:
        text = str(error).strip()
        raise TangentError(f"The device is {device!r}: {text.splitlines()[0] if text else ''}", "", remedy) from error
    if found.type == "meta":
        raise TangentError("The device is 'meta'.", "Tensors have no values there.", remedy)
    return found


def copy_model(
    model: nn.Module, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> nn.Module:
    """Copy a model so that nothing is shared with it, optionally to another precision or device.

    Names, values, ties, modes, hooks of modules and ``requires_grad`` are those of the model; gradients are not copied.

    Raises:
        TangentError: The model cannot be copied, the copy differs from it, or there is no such precision or device.
    """
    check_place(dtype, device)
    memo: dict[int, Any] = {}
    try:
        twin = copy.deepcopy(model, memo)
    except (RuntimeError, TypeError, NotImplementedError, AttributeError, RecursionError) as error:
        text = str(error).strip()
        raise TangentError(
            f"The model cannot be copied: {text.splitlines()[0] if text else type(error).__name__}",
            "Computations use a copy, so that your model stays unchanged. Tensors computed from parameters, as in the "
            "old torch.nn.utils.weight_norm, cannot be copied; neither can locks, files and generators.",
            "Use torch.nn.utils.parametrizations.weight_norm, and avoid such attributes; for another dtype or device, "
            "convert the model yourself.",
        ) from error
    for parameter in twin.parameters():
        if not parameter.is_leaf:  # torch.jit copies parameters with a graph that leads back to the original
            parameter.detach_().requires_grad_()
    for name, original in model.named_parameters():
        if original._backward_hooks:
            raise _unfaithful(f"its parameter {name} has a hook that changes its gradient")
        copied = memo.get(id(original))
        if copied is not None and vars(original) and not vars(copied):  # which deepcopy omits
            vars(copied).update(copy.deepcopy(vars(original), memo))
    _compare(model, twin)
    _compare_ties(model, twin)
    _refuse_links(model, twin)
    return twin.to(device=device, dtype=dtype) if device is not None or dtype is not None else twin


def _compare(model: nn.Module, twin: nn.Module) -> None:
    """Refuse a copy whose tensors are not the model's, or are in the model's own memory."""
    for kind in ("named_parameters", "named_buffers"):
        mine, theirs = (dict(getattr(m, kind)(remove_duplicate=False)) for m in (model, twin))
        if mine.keys() != theirs.keys():
            odd = sorted(mine.keys() ^ theirs.keys())[0]
            raise _unfaithful(f"only one of the two has {odd}")
        for name, tensor in mine.items():
            other = theirs[name]
            if tensor is other or _shared(tensor, other):
                raise _unfaithful(f"{name} is the same in both")
            if (tensor.shape, tensor.dtype, tensor.requires_grad) != (other.shape, other.dtype, other.requires_grad):
                raise _unfaithful(f"{name} has another shape, type or requires_grad")
            if not same_values(tensor, other):
                raise _unfaithful(f"{name} has other values")


def _compare_ties(model: nn.Module, twin: nn.Module) -> None:
    """Refuse a copy in which other parameters are tied than in the model."""
    first: list[dict[Any, str]] = [{}, {}]
    named = (dict(m.named_parameters(remove_duplicate=False)) for m in (model, twin))
    for name, *pair in ((n, a, b) for (n, a), (_, b) in zip(*(d.items() for d in named), strict=True)):
        ties = [seen.setdefault(memory_of(t) or id(t), name) for seen, t in zip(first, pair, strict=True)]
        if ties[0] != ties[1]:
            raise _unfaithful(f"{name} is tied to {max(ties, key=lambda tied: tied != name)} in only one of the two")


def same_values(one: Tensor, two: Tensor) -> bool:
    """Return whether two tensors hold the same numbers, NaN being equal to itself."""
    one, two = one.detach(), two.detach()
    if (one.shape, one.layout, one.dtype, one.device) != (two.shape, two.layout, two.dtype, two.device):
        return False
    if one.device.type == "meta" or torch.nn.parameter.is_lazy(one):
        return True
    if one.layout is not torch.strided or one.is_nested:
        ones, twos = parts_of(one), parts_of(two)
        return len(ones) == len(twos) and all(map(same_values, ones, twos))
    return torch.equal(one, two) or bool(((one == two) | ((one != one) & (two != two))).all())


def _shared(one: Tensor, two: Tensor) -> bool:
    address = memory_of(one)
    return address is not None and address == memory_of(two)


def memory_of(tensor: Tensor) -> tuple[torch.device, int] | None:
    """Return the memory address of a tensor, or None if it has no memory of its own."""
    try:
        pointer = tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError, ValueError):  # lazy and sparse tensors
        return None
    return (tensor.device, pointer) if pointer else None


def _refuse_links(model: nn.Module, twin: nn.Module) -> None:
    """Refuse a copy from which a module or tensor of the original can be reached."""
    modules = {id(module): name or "the model itself" for name, module in model.named_modules()}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    known = {id(tensor): name for name, tensor in tensors}
    memory = {address: name for name, tensor in tensors if (address := memory_of(tensor)) is not None}
    for thing, path in reachable(twin):
        name = modules.get(id(thing)) if isinstance(thing, nn.Module) else None
        if isinstance(thing, Tensor):
            name = known.get(id(thing)) or memory.get(memory_of(thing))  # type: ignore[arg-type]
        if name is not None:
            raise _unfaithful(f"{path} refers to {name} of the original")


def _unfaithful(fact: str) -> TangentError:
    return TangentError(
        f"The model cannot be copied faithfully: {fact}.",
        "copy.deepcopy shares functions and what they close over, and drops hooks of parameters, so that the copy "
        "would not have the model's gradients.",
        _REMEDY,
    )


def reachable(root: nn.Module) -> Iterator[tuple[Any, str]]:
    """Find every module and tensor that can be reached from a module, each with where it was found.

    The search follows attributes, containers, closures, default arguments, bound methods, partials, weak references,
    and the classes of modules. It follows global names only to modules, tensors and containers of them, and to
    functions of the same file, since all of a program can be reached through them.
    """
    seen: set[int] = set()
    stack: list[tuple[Any, str]] = [(root, "the copy")]
    while stack:
        thing, path = stack.pop()
        if id(thing) in seen or isinstance(thing, _LEAVES):
            continue
        seen.add(id(thing))
        if isinstance(thing, (nn.Module, Tensor)):
            yield thing, path
        stack.extend(_parts(thing, path))


_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), types.ModuleType, types.CodeType, torch.dtype)
_OWN = ("torch.", "numpy.", "builtins", "functools", "collections", "typing")


def _parts(thing: Any, path: str) -> Iterator[tuple[Any, str]]:
    """List what an object refers to."""
    if isinstance(thing, types.FunctionType):
        where = f"the function {thing.__qualname__}"
        for cell in thing.__closure__ or ():
            if _filled(cell):
                yield cell.cell_contents, where
        yield thing.__defaults__, where
        yield thing.__kwdefaults__, where
        yield vars(thing), where
        yield from ((value, where) for value in _globals(thing))
    elif isinstance(thing, types.MethodType):
        yield thing.__self__, path
        yield thing.__func__, path
    elif isinstance(thing, weakref.ReferenceType):
        yield thing(), path
    elif isinstance(thing, (classmethod, staticmethod)):
        yield thing.__func__, path
    elif isinstance(thing, property):
        yield from ((function, path) for function in (thing.fget, thing.fset, thing.fdel))
    elif isinstance(thing, dict):
        yield from ((value, path) for value in list(thing.values()))
    elif isinstance(thing, (list, tuple, set, frozenset)) or type(thing).__module__ == "collections":
        yield from ((value, path) for value in list(thing))
    elif isinstance(thing, type):
        if not f"{thing.__module__}.".startswith(_OWN):
            # The constructor has already run: no forward pass uses its default arguments.
            members = [value for name, value in vars(thing).items() if name != "__init__"]
            yield from ((value, f"the class {thing.__qualname__}") for value in members)
            yield from ((base, path) for base in thing.__bases__)
    elif type(thing).__module__ == "functools":
        yield from ((getattr(thing, name, None), path) for name in ("func", "args", "keywords", "__wrapped__"))
    else:
        where = f"{path}'s {type(thing).__name__}" if isinstance(thing, nn.Module) and path == "the copy" else path
        yield getattr(thing, "__dict__", None), where
        yield from ((getattr(thing, slot, None), where) for slot in _slots(type(thing)))
        if isinstance(thing, nn.Module) or not f"{type(thing).__module__}.".startswith(_OWN):
            yield type(thing), where


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 raises where the name has not been bound
    except ValueError:
        return False
    return True


def _slots(kind: type) -> list[str]:
    if f"{kind.__module__}.".startswith(_OWN):
        return []
    found = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    return [name for slots in found for name in ([slots] if isinstance(slots, str) else slots)]


_GLOBAL = ("LOAD_GLOBAL", "LOAD_NAME")


def _globals(function: types.FunctionType) -> Iterator[Any]:
    """Find the values of the global names in a function's code that may lead to a model."""
    scope = function.__globals__
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        codes.extend(constant for constant in code.co_consts if isinstance(constant, types.CodeType))
        for name in code.co_names:
            value = scope.get(name)
            of_file = isinstance(value, types.FunctionType) and value.__globals__ is scope
            leads = of_file or isinstance(value, (nn.Module, Tensor, list, tuple, dict))
            if leads and any(i.opname in _GLOBAL and i.argval == name for i in dis.get_instructions(code)):
                yield value  # otherwise it is the name of an attribute
