"""A pretended device: tensors that say they are on ``pretend:0`` and refuse to meet those on the CPU, as a GPU's do.

A tensor there wraps one on the CPU. :class:`PretendDevice`, a dispatch mode, sees every operation below autograd, runs
it on the wrapped tensors, and applies the rules that CUDA has:

- tensors on two devices do not mix, unless the one on the CPU has no axes, is copied from or to, or is an index;
- a random generator of the CPU draws no numbers on the device;
- ``.numpy()`` needs ``.cpu()`` before it (PyTorch itself refuses).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

_setup_privateuseone_for_python_backend("pretend")

DEVICE = torch.device("pretend:0")
_aten = torch.ops.aten
_MOVES = {_aten._to_copy.default, _aten.copy_.default, _aten._copy_from.default}
_INDEXING = {
    *(_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default),
}


class MixedDevices(RuntimeError):
    """An operation that a GPU would refuse."""


class Held(Tensor):
    """A tensor on the pretended device."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> "Held":
        held = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            layout=inner.layout,
            device=DEVICE,
        )
        held.inner = inner
        return held

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        return self.inner.tolist()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        copy: Tensor = self.detach().clone()
        if isinstance(self, nn.Parameter):
            copy = nn.Parameter(copy, self.requires_grad)
        else:
            copy.requires_grad_(self.requires_grad)
        memo[id(self)] = copy
        return copy

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"Held({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})

    __torch_function__ = torch._C._disabled_torch_function_impl


class PretendDevice(TorchDispatchMode):
    """The mode under which ``device="pretend"`` works. Counts the operations that ran there."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = _run(func, args, kwargs or {})
        self.count += any(isinstance(t, Held) for t in pytree.tree_leaves(result))
        return result


def _run(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    leaves, spec = pytree.tree_flatten((args, kwargs))
    held = [t for t in leaves if isinstance(t, Held)]
    asked = kwargs.get("device")
    if asked is not None:
        there = torch.device(asked).type == DEVICE.type
    else:
        there = bool(held) if func not in (_aten._copy_from.default,) else isinstance(args[1], Held)
    if held:
        _refuse_mixing(func, args, leaves)
    if there and isinstance(generator := kwargs.get("generator"), torch.Generator) and generator.device.type == "cpu":
        raise MixedDevices(f"{func}: a generator of the CPU draws no numbers on the device.")
    if func is _aten.copy_.default:
        there = isinstance(args[0], Held)
    if func is _aten._copy_from.default:
        source, target = (t.inner if isinstance(t, Held) else t for t in args[:2])
        target.copy_(source)
        return args[1]
    owners = {id(t.inner): t for t in held}

    def unwrap(value: Any) -> Any:
        if isinstance(value, Held):
            return value.inner
        return torch.device("cpu") if isinstance(value, torch.device) and value.type == DEVICE.type else value

    inner_args, inner_kwargs = pytree.tree_unflatten([unwrap(leaf) for leaf in leaves], spec)
    if func is _aten._to_copy.default and there != isinstance(args[0], Held):
        inner_kwargs["device"] = torch.device("cpu")
        result = func(*inner_args, **inner_kwargs)
    else:
        result = func(*inner_args, **inner_kwargs)
    if torch.Tag.inplace_view in func.tags and held:  # squeeze_ and the like: the wrapper has another shape, too
        with no_dispatch():
            func(*args, **kwargs)

    def wrap(value: Any) -> Any:
        if not isinstance(value, Tensor) or isinstance(value, Held):
            return value
        if id(value) in owners:
            return owners[id(value)]
        return Held(value) if there else value

    return pytree.tree_map(wrap, result)


def _refuse_mixing(func: Any, args: Sequence[Any], leaves: Sequence[Any]) -> None:
    if func in _MOVES:
        return
    plain = [t for t in leaves if isinstance(t, Tensor) and not isinstance(t, Held)]
    if func in _INDEXING and isinstance(args[0], Held):
        indices = {id(t) for t in args[1] if isinstance(t, Tensor)}
        plain = [t for t in plain if id(t) not in indices]
    strangers = [t for t in plain if t.ndim > 0]
    if strangers:
        raise MixedDevices(f"{func} mixes tensors on {DEVICE} and on the CPU, {tuple(strangers[0].shape)}.")


_library = torch.library.Library("aten", "IMPL")
for _operation in (_aten.empty.memory_format, _aten.empty_strided.default, _aten._copy_from.default):
    # What PyTorch calls with Python modes switched off, for instance to make a tensor from a list of indices.
    _library.impl(
        _operation, partial(lambda func, *args, **kwargs: _run(func, args, kwargs), _operation), "PrivateUse1"
    )
