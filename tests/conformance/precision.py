"""Networks that compute in float32 inside, whatever their weights are: found out, and made to use float64."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tests.conformance.family import Problem

ROUNDING = 1e-5
"""Of sqrt(K_ii K_jj), where a float64 network rounds to float32 inside: its Jacobian is not smoother than that."""


class _Watch(TorchFunctionMode):
    """Looks for results in single precision or less."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dtype != torch.float64:
                self.found = True
        return result


def computes_in_float32(problem: Problem) -> bool:
    """Whether a float64 network makes numbers of a lower precision on the way."""
    with torch.no_grad(), _Watch() as watch:
        problem(problem.inputs)
    return watch.found


@contextmanager
def float64_throughout() -> Iterator[None]:
    """While active, code that asks for float32 by name gets float64, so that comparisons are as sharp as elsewhere."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    double = torch.float64
    try:
        with (
            patch.object(torch, "float32", double),
            patch.object(torch, "float", double),
            patch.object(torch.Tensor, "float", torch.Tensor.double),
        ):
            yield
    finally:
        torch.set_default_dtype(default)
