"""The adjoint test, <v, J u> = <J^T v, u>: do forward mode and backward passes have the same Jacobian?"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab.linearized._nonfinite import refuse_infinite_gradients, refuse_nan, refuse_overflow
from tangentlab.linearized._point import Expansion, Point, differentiable


def normal_noise(tensors: Sequence[Tensor], seed: int) -> list[Tensor]:
    """Draw normal noise in the shapes of some tensors, the same in every call."""
    generator = torch.Generator().manual_seed(seed)
    kinds = [torch.complex128 if t.is_complex() else torch.float64 for t in tensors]
    noise = [torch.randn(t.shape, generator=generator, dtype=kind) for t, kind in zip(tensors, kinds, strict=True)]
    return [n.to(device=t.device, dtype=t.dtype) for n, t in zip(noise, tensors, strict=True)]


def adjoint_identity_holds(
    forwards: Sequence[tuple[Tensor, Tensor]], backwards: Sequence[tuple[Tensor, Tensor]], rounding: float
) -> bool:
    """Return whether two sums of inner products agree up to rounding.

    The difference is compared with the root of the summed squares of the terms, the typical size of a sum with random
    signs, so that one wrong row among thousands is detected.

    Args:
        forwards: (v, J u) for each output.
        backwards: (J^T v, u) for each parameter.
        rounding: The coarsest relative rounding error inside the network.
    """
    sums, squares, absolute, coarsest = [0.0, 0.0], 0.0, 0.0, rounding
    for side, pairs in enumerate((forwards, backwards)):
        for one, two in pairs:
            terms = _double(one) * _double(two)
            sums[side] += float(terms.sum())
            squares += float(terms.square().sum())
            absolute += float(terms.abs().sum())
            coarsest = max(coarsest, torch.finfo(one.dtype).eps, torch.finfo(two.dtype).eps)
    gap = abs(sums[0] - sums[1])
    return not gap > coarsest**0.5 * squares**0.5 + 64 * coarsest * absolute


def _double(tensor: Tensor) -> Tensor:
    """Convert to double precision; a complex number becomes two real ones."""
    tensor = tensor.detach().to_dense()
    return (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).double()


def forward_matches_backward(point: Point, expand: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether forward mode is the transpose of a backward pass on these inputs. Costs 5F.

    The direction u is random, scaled such that each parameter contributes about 1 to <J^T v, u>.

    Args:
        point: The base point.
        expand: Forward mode: a function from a point, no names and inputs to an expansion.
        args: The network's inputs.
        kwargs: The network's keyword inputs.

    Raises:
        TangentError: Outputs or gradients are not finite, or the network's own backward pass raises an error.
    """
    args, kwargs = pytree.tree_map_only(Tensor, lambda t: t.detach().clone(), (args, kwargs))
    names = [name for name in point.displacement if point.weights[name].device.type != "meta"]
    leaves = {name: point.weights[name].detach().requires_grad_() for name in names}
    try:
        with torch.enable_grad(), point.installed(leaves):
            with _Precision() as precision:
                output = [leaf for leaf in pytree.tree_leaves(point.network(*args, **kwargs)) if differentiable(leaf)]
            point.settings.rounding = max(point.settings.rounding, precision.coarsest)
            values = [leaf.detach() for leaf in output]
            refuse_nan(values)
            vectors = normal_noise(output, 0)
            pairs = [(o, v) for o, v in zip(output, vectors, strict=True) if o.requires_grad]
            if not pairs or not leaves:
                return True
            found = _gradients(pairs, list(leaves.values()))
    except (RuntimeError, NotImplementedError):
        return True  # there are no gradients; a backward pass will raise the error
    del output, pairs
    grads: list[Tensor] = [
        torch.zeros_like(w) if g is None else g.to_dense() for g, w in zip(found, leaves.values(), strict=True)
    ]
    norms = [float(g.double().norm()) for g in grads]
    # In float16, this sum over all outputs may overflow even if the mean in a loss does not.
    wide = [norm for norm, g in zip(norms, grads, strict=True) if g.dtype != torch.float16]
    refuse_infinite_gradients(wide, values)
    # A gradient that is zero up to rounding, as that of a bias before a softmax, has no meaningful scale.
    least = max(norms) * max(torch.finfo(g.dtype).eps for g in grads) ** 0.25 or 1.0
    steps = [d / max(norm, least) for d, norm in zip(normal_noise(grads, 1), norms, strict=True)]
    expansion: Expansion = expand(replace(point, displacement=dict(zip(names, steps, strict=True))), (), args, kwargs)
    tangents = [t for p, t in zip(expansion.primal, expansion.tangent, strict=True) if differentiable(p)]
    refuse_overflow(values, tangents)
    forwards = [(v, t) for v, t in zip(vectors, tangents, strict=True) if t is not None]
    return adjoint_identity_holds(forwards, list(zip(grads, steps, strict=True)), point.settings.rounding)


def _gradients(pairs: Sequence[tuple[Tensor, Tensor]], leaves: Sequence[Tensor]) -> Sequence[Tensor | None]:
    try:
        return torch.autograd.grad([o for o, _ in pairs], leaves, [v for _, v in pairs], allow_unused=True)
    except (RuntimeError, NotImplementedError):
        raise
    except Exception as error:  # a backward pass written in Python may raise anything
        text = str(error).strip()
        raise TangentError(
            f"PyTorch cannot differentiate the network: {text.splitlines()[0] if text else type(error).__name__}",
            why="A torch.autograd.Function of the network raised this error in its backward pass.",
            remedy="Call the network as in its training, or replace that function.",
        ) from error


class _Precision(TorchFunctionMode):
    """A torch function mode that records the coarsest precision of results that depend on weights.

    Inside custom autograd functions, where gradients are off, any result may depend on weights.
    """

    def __init__(self) -> None:
        super().__init__()
        self.coarsest = 0.0

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if differentiable(leaf) and (leaf.requires_grad or not torch.is_grad_enabled()):
                self.coarsest = max(self.coarsest, torch.finfo(leaf.dtype).eps)
        return result
