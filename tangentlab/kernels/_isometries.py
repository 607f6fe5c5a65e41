"""Operations that only reorder and scale a parameter: gradients with respect to the result serve as they are."""

import numbers
from typing import Any

import torch
from torch import Tensor

_REORDERINGS = {
    f"torch.{owner}{name}"
    for owner in ("", "Tensor.")
    for name in (
        *(
            "t",
            "transpose",
            "permute",
            "movedim",
            "moveaxis",
            "swapaxes",
            "swapdims",
            "reshape",
            "view",
            "view_as",
        ),
        *("flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "clone", "flip", "roll", "adjoint"),
        *("T.__get__", "mT.__get__", "H.__get__", "mH.__get__", "conj", "positive"),
    )
}
_SCALINGS = {f"torch.{owner}{name}" for owner in ("", "Tensor.") for name in ("mul", "multiply", "__rmul__")}
_DIVISIONS = {f"torch.{owner}{name}" for owner in ("", "Tensor.") for name in ("div", "divide", "true_divide")}
_NEGATIONS = {"torch.neg", "torch.Tensor.neg", "torch.negative", "torch.Tensor.negative"}


_REORDERING_ARGUMENTS = frozenset(
    "dim dims dim0 dim1 axis axis0 axis1 source destination shape sizes size shifts "
    "start_dim end_dim memory_format other".split()
)


def isometry_scale(name: str, args: Any, kwargs: dict[str, Any], source: Tensor, output: Tensor) -> float | None:
    """Return the scale c if ``output`` is c times a reordering of the only source, else None.

    An argument that is not known could change what is computed (``rounding_mode``), so it means None.
    """
    if output.numel() != source.numel() or output.dtype != source.dtype:
        return None
    if name in _REORDERINGS:
        known = _REORDERING_ARGUMENTS.issuperset(kwargs) and not any(isinstance(a, torch.dtype) for a in args)
        return 1.0 if known else None
    if kwargs:
        return None
    if name in _NEGATIONS:
        return -1.0
    if name in _SCALINGS | _DIVISIONS and len(args) == 2:
        left, right = args
        if left is not source and name in _DIVISIONS:
            return None
        other = right if left is source else left
        if isinstance(other, Tensor):
            if other.ndim or other.requires_grad or other.is_complex():
                return None
            other = other.item()
        if isinstance(other, numbers.Real) and (other or name in _SCALINGS):
            return float(other) if name in _SCALINGS else 1.0 / float(other)
    return None
