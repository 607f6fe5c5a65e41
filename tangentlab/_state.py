"""The state of a module, kept to find and undo what a forward pass changes.

Parameters and buffers can be written in place, reassigned, registered or deleted; modules can be added or replaced; and
a forward pass can count, cache and collect in attributes, lists and dictionaries.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import eq, is_
from types import FunctionType, ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab._copying import same_values

Kind = Literal["parameter", "buffer", "module", "tensor", "attribute"]
_TABLES: dict[str, Kind] = {"_parameters": "parameter", "_buffers": "buffer", "_modules": "module"}
_INTERNAL = frozenset(vars(nn.Module()))
_DEPTH = 4
"""The depth to which attributes of objects are compared."""
_LIBRARIES = ("torch.", "numpy.", "builtins.", "tangentlab.")


@dataclass(frozen=True)
class Change:
    """A part of a module that has changed."""

    kind: Kind
    name: str


@dataclass(slots=True)
class _Container:
    """A list, dictionary, set or deque with its former content."""

    kind: Kind
    name: str
    now: Any
    before: Any

    def changes(self) -> Iterator[Change]:
        if self.untouched():
            return
        if not isinstance(self.now, dict):
            if len(self.now) != len(self.before) or not all(map(_same, self.now, self.before)):
                yield Change(self.kind, self.name)
            return
        for key in {**self.before, **self.now}:
            if key not in self.now or key not in self.before or not _same(self.now[key], self.before[key]):
                if self.kind == "buffer" and _equal(self.now.get(key), self.before.get(key)):
                    continue
                yield Change(self.kind, f"{self.name}.{key}".removeprefix("."))

    def untouched(self) -> bool:
        now, before = self.now, self.before
        if len(now) != len(before):
            return False
        if isinstance(now, dict):
            return all(map(is_, now.values(), before.values())) and all(map(eq, now, before))
        return all(map(is_, now, before))

    def restore(self) -> None:
        if self.untouched():
            return
        if isinstance(self.now, dict):
            if list(self.now) != list(self.before):
                self.now.clear()
            self.now.update(self.before)
        elif isinstance(self.now, list):
            self.now[:] = self.before
        else:
            self.now.clear()
            (self.now.update if isinstance(self.now, set) else self.now.extend)(self.before)


class _Content:
    """A tensor with its former memory, and optionally its former numbers."""

    __slots__ = ("grad", "kind", "memory", "name", "requires_grad", "tensor", "values", "version")

    def __init__(self, kind: Kind, name: str, tensor: Tensor, values: bool) -> None:
        self.kind, self.name, self.tensor = kind, name, tensor
        self.memory = tensor.data
        self.version = version_of(tensor)
        self.requires_grad = tensor.requires_grad
        self.grad = tensor.grad if tensor.is_leaf else None
        self.values = tensor.detach().clone() if values and not nn.parameter.is_lazy(tensor) else None

    def changes(self) -> Iterator[Change]:
        moved = self._moved()
        written = version_of(self.tensor) != self.version
        if not written and self.values is not None:
            written = not same_values(self.tensor, self.values)
        if written or moved or self.tensor.requires_grad != self.requires_grad:
            yield Change(self.kind, self.name)

    def _moved(self) -> bool:
        now, before = self.tensor, self.memory
        if now.layout is not torch.strided or now.is_nested:
            return False
        return now.data_ptr() != before.data_ptr() or now.shape != before.shape or now.dtype != before.dtype

    def restore(self) -> None:
        if self._moved():
            self.tensor.data = self.memory
        if self.values is not None and not same_values(self.tensor, self.values):
            self.tensor.data.copy_(self.values)  # a write in place is refused, so that no graph needs it
        if self.tensor.requires_grad != self.requires_grad:
            (self.tensor if self.tensor.is_leaf else self.tensor.detach_()).requires_grad_(self.requires_grad)
        if self.other_gradient():
            self.tensor.grad = self.grad

    def other_gradient(self) -> bool:
        """Return whether ``grad`` is another tensor than before."""
        return self.tensor.is_leaf and self.tensor.grad is not self.grad


class State:
    """The state of a module.

    Args:
        module: The module.
        values: Whether to keep also the numbers of parameters and buffers, and the hooks of modules. Without them,
            writes in place are found by version counters only and cannot be undone. The numbers of other tensors and
            of arrays are always kept.
    """

    def __init__(self, module: nn.Module, values: bool = False) -> None:
        self._values = values
        self._containers: list[_Container] = []
        self._tensors: list[_Content] = []
        self._arrays: list[tuple[str, Any, Any]] = []
        self._seen: set[int] = set()
        self.untouched = False
        """Whether :meth:`changes` has found, the last time, that there is nothing to restore."""
        every = list(module.named_modules())
        # What a scripted module holds cannot be reassigned.
        modules = [(prefix, part) for prefix, part in every if not isinstance(part, torch.jit.ScriptModule)]
        for prefix, part in every:
            for name, tensor in (*part._parameters.items(), *part._buffers.items()):
                kind: Kind = "parameter" if isinstance(tensor, nn.Parameter) else "buffer"
                self._add_tensor(kind, f"{prefix}.{name}".removeprefix("."), tensor)
        for prefix, part in modules:
            self._keep("attribute", prefix, vars(part))
            for table, what in _TABLES.items():
                self._keep(what, prefix, vars(part)[table])
        for prefix, part in modules:
            for name, value in vars(part).items():
                if name not in _INTERNAL or (values and name not in _TABLES):
                    self._add(f"{prefix}.{name}".removeprefix("."), value, _DEPTH)

    def _keep(self, kind: Kind, name: str, container: Any) -> None:
        self._seen.add(id(container))
        before = dict(container) if isinstance(container, dict) else list(container)
        self._containers.append(_Container(kind, name, container, before))

    def _add_tensor(self, kind: Kind, name: str, tensor: Tensor | None) -> None:
        if tensor is not None and id(tensor) not in self._seen:
            self._seen.add(id(tensor))
            if tensor.device.type != "meta":
                self._tensors.append(_Content(kind, name, tensor, self._values or kind == "tensor"))
            if tensor.is_leaf:
                self._add_tensor(kind, f"{name}.grad", tensor.grad)

    def _add(self, name: str, value: Any, depth: int) -> None:
        if isinstance(value, _ATOMS) or depth == 0 or id(value) in self._seen:
            return
        if isinstance(value, Tensor):
            self._add_tensor("tensor", name, value)
        elif isinstance(value, np.ndarray):
            self._seen.add(id(value))
            self._arrays.append((name, value, value.copy()))
        elif isinstance(value, (dict, list, set, deque)):
            self._keep("attribute", name, value)
            parts: Iterable[Any] = value.values() if isinstance(value, dict) else value
            for part in list(parts):
                self._add(name, part, depth - 1)
        elif isinstance(value, tuple):
            self._seen.add(id(value))
            for part in value:
                self._add(name, part, depth - 1)
        elif hasattr(value, "__dict__") and not f"{type(value).__module__}.".startswith(_LIBRARIES):
            self._seen.add(id(value))
            self._add(name, vars(value), depth - 1)

    def changes(self) -> list[Change]:
        """List what has changed: parameters, buffers and modules first."""
        touched = [container for container in self._containers if not container.untouched()]
        parts: list[_Container | _Content] = [*touched, *self._tensors]
        found = [change for part in parts for change in part.changes()]
        found += [Change("attribute", n) for n, now, before in self._arrays if not np.array_equal(now, before)]
        self.untouched = not (touched or found or any(tensor.other_gradient() for tensor in self._tensors))
        return sorted(found, key=lambda change: change.kind == "attribute")

    def restore(self) -> None:
        """Restore everything: places, and numbers if they were kept."""
        for container in self._containers:
            container.restore()
        with torch.no_grad():
            for tensor in self._tensors:
                tensor.restore()
        for _, now, before in self._arrays:
            if not np.array_equal(now, before):
                now[...] = before


_ATOMS = (str, bytes, int, float, complex, type(None), type, ModuleType, FunctionType, nn.Module, torch.dtype)


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor has been written to; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _same(one: Any, two: Any) -> bool:
    return one is two or (isinstance(one, (int, float, str)) and type(one) is type(two) and one == two)


def _equal(one: Any, two: Any) -> bool:
    return isinstance(one, Tensor) and isinstance(two, Tensor) and same_values(one, two)
