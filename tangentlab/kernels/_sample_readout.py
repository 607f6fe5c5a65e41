r"""Readouts that are functions of one sample's outputs and its target.

With outputs f(x) and a function phi of R numbers, the kernel is that of phi(f(x_n), y_n), whose gradient is

    d phi_r(f(x_n), y_n)/d theta = sum_o (d phi_r/d f_o)(f(x_n), y_n) d f_o(x_n)/d theta

so a sample has a linear readout of its own, Q_n = d phi/d f at its outputs, and R backward passes give its gradients,
whatever the number of outputs O.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels import _named_readouts as named
from tangentlab.kernels._inputs import Batch, all_finite, describe
from tangentlab.kernels._readout import Readout, Reduction, SampleFunction
from tangentlab.kernels._target_values import described, like, single

_ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-3}
"""Relative disagreement that is still rounding; 0.05 in half precision."""
_COPIES = 3
"""Arrays of the outputs' size that a user's function is assumed to make."""


@dataclass(frozen=True)
class SampleReadout(Readout):
    """A function of each sample's outputs and its target.

    Attributes:
        name: What errors call it.
        function: From the outputs (B, ...) and a batch to (B,) or (B, R).
        numbers: R.
        outputs: The shape of one sample's outputs.
    """

    name: str
    function: "Callable[[Tensor, Batch], Tensor]"
    numbers: int
    outputs: torch.Size

    @property
    def size(self) -> int:
        """R."""
        return self.numbers

    @property
    def reduction(self) -> Reduction:  # type: ignore[override]
        """One number has no axis in the kernel."""
        return "squeeze" if self.numbers == 1 else "none"

    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        """Compute phi of a batch, (B, R).

        Raises:
            TangentError: The function fails, or gives other than R finite numbers.
        """
        values = self.function(outputs, _placed(batch, outputs))
        found = values.shape[1:].numel()
        if found != self.size:
            raise TangentError(
                f"The readout {self.name} gave {self.size} numbers per sample and now gives {found}.",
                "A kernel needs the same functions for every sample.",
                "Return as many numbers for each sample.",
            )
        if not all_finite(values.detach()):
            where = int((~torch.isfinite(values.detach().reshape(len(values), -1)).all(1)).nonzero()[0])
            raise TangentError(
                f"The readout {self.name} gives NaN or infinite values, for instance for a sample with the target "
                f"{_shown(batch, where)}.",
                "The kernel would hold them, too.",
                "Write it such that it is finite for all outputs (log_softmax, not log of softmax), or leave out the "
                "sample.",
            )
        return values.reshape(len(values), self.size).to(outputs.dtype)

    def refuse_targets(self, targets: Any) -> None:
        if not isinstance(self.function, ByUser):
            named.refuse_targets(self.function.__name__, self.outputs, targets)

    def working_bytes(self, outputs: Tensor) -> int:
        return _COPIES * outputs[0].numel() * outputs.element_size() if isinstance(self.function, ByUser) else 0


def bind(spec: str | SampleFunction, outputs: Tensor, batch: Batch, parameters: Iterable[Tensor]) -> SampleReadout:
    """Return the readout that a user asked for, checked on a few samples.

    Args:
        spec: A name, or a function.
        outputs: Outputs of a few samples, (B, ...).
        batch: The samples.
        parameters: Those of the network, which a function sees through the outputs only.

    Raises:
        TangentError: The function fails, does not give numbers, is not differentiable or not finite, is random, or
            mixes samples.
    """
    name = repr(spec) if isinstance(spec, str) else getattr(spec, "__name__", type(spec).__name__)
    function = named.NAMED[spec] if isinstance(spec, str) else ByUser(spec, name)
    with torch.enable_grad():
        leaf = outputs.detach().requires_grad_()
        values = function(leaf, _placed(batch, outputs))
        readout = SampleReadout(name, function, values.shape[1:].numel(), outputs.shape[1:])
        if not _differentiable(readout, values, leaf, batch):
            raise TangentError(
                f"The readout {name} is not differentiable.",
                "Its value does not depend on the outputs by differentiable operations: comparisons, argmax, rounding, "
                "item(), detach() and no_grad() have no gradient.",
                "Return a smooth function of the outputs, for instance a loss instead of an accuracy.",
            )
        _refuse_parameters(readout, outputs.detach(), batch, list(parameters))
        _refuse_mixing(readout, leaf, batch)
        if isinstance(function, ByUser):
            function.vectorize(leaf, batch)
    return readout


class ByUser:
    """A user's function of one sample's outputs and its target, for all samples of a batch.

    It is called for one sample at a time, so that it cannot see another. Where ``torch.vmap`` gives the same numbers
    and gradients on the samples of the probe, which needs a function without decisions by values, that is used.

    Args:
        function: The function.
        name: What errors call it.
    """

    def __init__(self, function: SampleFunction, name: str) -> None:
        self.function, self.name = function, name
        self._vectorized = False

    def __call__(self, outputs: Tensor, batch: Batch) -> Tensor:
        if self._vectorized:
            try:
                return self._at_once(outputs, _placed(batch, outputs))
            except Exception:  # the loop says what is wrong, if anything is
                pass
        return self._one_by_one(outputs, batch)

    def vectorize(self, outputs: Tensor, batch: Batch) -> None:
        """Take ``torch.vmap`` from now on if it does the same, given the outputs of a few samples as a leaf."""
        expected = self._one_by_one(outputs, _placed(batch, outputs))
        weights = _weights(expected)
        try:
            found = self._at_once(outputs, _placed(batch, outputs))
            slopes = [_gradient((weights * values).sum(), outputs) for values in (expected, found)]
        except Exception:  # a decision by values, a list of targets, an operation without a rule: whatever it is
            return
        tolerance = 0.1 * _tolerance(outputs)
        self._vectorized = found.shape == expected.shape and all(
            _alike(one, two, tolerance) for one, two in ((expected, found), slopes)
        )

    def _at_once(self, outputs: Tensor, batch: Batch) -> Tensor:
        if batch.targets is None:
            return torch.vmap(lambda one: self.function(one, None))(outputs)
        return torch.vmap(self.function)(outputs, batch.targets)

    def _one_by_one(self, outputs: Tensor, batch: Batch) -> Tensor:
        rows = [
            self._single(one, None if batch.targets is None else single(batch.targets, i))
            for i, one in enumerate(outputs.unbind(0))
        ]
        shapes = {row.shape for row in rows}
        if len(shapes) > 1:
            sizes = " and ".join(str(tuple(shape)) for shape in sorted(shapes)[:2])
            raise TangentError(
                f"The readout {self.name} gives {sizes} for different samples.",
                "A kernel needs the same functions for every sample.",
                "Return as many numbers for each sample.",
            )
        return torch.stack(rows)

    def _single(self, outputs: Tensor, target: Any) -> Tensor:
        try:
            value = self.function(outputs, target)
        except TangentError:
            raise
        except Exception as error:
            text = str(error).strip() or "no message"
            shown = "None, as the samples came without targets" if target is None else _kind(target)
            raise TangentError(
                f"The readout {self.name} fails: {type(error).__name__}: {text.splitlines()[0]}",
                f"It is called for one sample, with its outputs, {describe(outputs)}, and its target, {shown}.",
                "Write it for one sample, without a batch axis; the targets come from targets= or the Dataset.",
            ) from error
        if not isinstance(value, Tensor) or value.ndim > 1 or value.numel() == 0 or value.is_complex():
            what = describe(value) if isinstance(value, Tensor) else type(value).__name__
            raise TangentError(
                f"The readout {self.name} returns {what} for one sample.",
                "A sample has one number, a tensor without axes, or R numbers, a tensor (R,).",
                "Return such a tensor, made of the outputs by differentiable operations (no item(), no numpy).",
            )
        return value


def _placed(batch: Batch, outputs: Tensor) -> Batch:
    """Return a batch with targets like the outputs, in memory of their own: a function may write to them."""
    return Batch(batch.inputs, like(outputs, batch.targets))


def _differentiable(readout: SampleReadout, values: Tensor, leaf: Tensor, batch: Batch) -> bool:
    """Return whether a function has a gradient with respect to the outputs.

    A gradient of zero is one, as that of a hinge loss beyond its margin, unless other outputs, whose gradient is zero,
    too, give another value.
    """
    if not values.requires_grad or not values.is_floating_point():
        return False
    (slope,) = torch.autograd.grad(values.sum(), leaf, allow_unused=True, retain_graph=True)
    if slope is None:
        return False
    if bool(slope.any()):
        return True
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf)
    moved = (leaf.detach() + noise * (1 + leaf.detach().abs().mean())).requires_grad_()
    others = readout(moved, batch)
    return torch.equal(others.detach(), readout(leaf, batch).detach()) or bool(_gradient(others.sum(), moved).any())


def _refuse_parameters(readout: SampleReadout, outputs: Tensor, batch: Batch, parameters: list[Tensor]) -> None:
    """Refuse a function that depends on the network's parameters other than through the outputs."""
    fixed = readout(outputs, batch)
    found = (
        torch.autograd.grad(fixed.sum(), parameters, allow_unused=True) if fixed.requires_grad and parameters else ()
    )
    if any(gradient is not None for gradient in found):
        raise TangentError(
            f"The readout {readout.name} uses parameters of the model.",
            "It is a function of a sample's outputs and its target: the kernel holds what changes through the outputs.",
            "Return what it needs from the model, chosen by output=, or detach the parameters.",
        )


def _refuse_mixing(readout: SampleReadout, leaf: Tensor, batch: Batch) -> None:
    """Refuse a function whose value or gradient of a sample depends on the other samples, or on chance.

    With weights w, all different, d/df_b sum_{c,r} w_cr phi_r(f_c, y_c) must be what sample b alone gives.
    """
    before = _generators(leaf.device)
    values = readout(leaf, batch)
    # A few values that agree may do so by chance: a function that draws random numbers is found by its draws.
    random = any(not torch.equal(*pair) for pair in zip(before, _generators(leaf.device), strict=True))
    weights = _weights(values)
    slope = _gradient((weights * values).sum(), leaf)
    tolerance = _tolerance(leaf)
    for b in range(len(leaf)):
        own = leaf[b : b + 1].detach().requires_grad_()
        alone = readout(own, batch.single(b))
        own_slope = _gradient((weights[b : b + 1] * alone).sum(), own)
        if not all_finite(own_slope):
            raise TangentError(
                f"The gradient of the readout {readout.name} holds NaN or infinite values, for instance for a sample "
                f"with the target {_shown(batch, b)}.",
                "The kernel would hold them, too.",
                "Write it such that its gradient is finite (a square root has none at zero), or leave out the sample.",
            )
        # A value that nearly cancels is rounding of the size of the outputs.
        size = float(own_slope.norm() * own.detach().norm() / weights[b].norm())
        same = _alike(alone, values[b : b + 1], tolerance, size)
        if random or not (same and _alike(own_slope, slope[b : b + 1], tolerance)):
            raise TangentError(
                f"The readout {readout.name} gives another value or gradient for a sample alone than among others.",
                "It mixes samples, remembers earlier ones, or is random, so a kernel between two of them does not "
                "exist.",
                "Write it as a function of one sample's outputs and its target alone, without dropout and without "
                "means over a batch.",
            )


def _generators(device: torch.device) -> list[Tensor]:
    """Return the states of the random generators that a function on a device draws from."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])


def _weights(values: Tensor) -> Tensor:
    """Return fixed, unequal weights for all numbers of all samples."""
    generator = torch.Generator().manual_seed(0)
    return (0.5 + torch.rand(values.shape, generator=generator, dtype=torch.float64)).to(values)


def _gradient(value: Tensor, leaf: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(value, leaf, allow_unused=True, retain_graph=True)
    return torch.zeros_like(leaf) if found is None else found


def _tolerance(outputs: Tensor) -> float:
    return _ROUNDING.get(outputs.dtype, 0.05)


def _alike(one: Tensor, two: Tensor, tolerance: float, size: float = 0.0) -> bool:
    one, two = one.detach().double(), two.detach().double()
    return float((one - two).norm()) <= tolerance * max(float(one.norm()), float(two.norm()), size)


def _shown(batch: Batch, index: int) -> str:
    if batch.targets is None:
        return "None"
    target = single(batch.targets, index)
    return repr(target.item()) if isinstance(target, Tensor) and target.numel() == 1 else _kind(target)


def _kind(target: Any) -> str:
    return describe(target) if isinstance(target, (Tensor, dict)) else described(target)
