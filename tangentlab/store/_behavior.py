"""Readouts and kernel of a few samples: numbers that identify a network on any machine."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tangentlab._errors import TangentError
from tangentlab._sums import inner
from tangentlab.kernels.internal import Network, Plan, ReadoutLike, Recording, correct_gradient, gradient
from tangentlab.store._digest import Digest

TOLERANCES = {"double": 1e-6, "single": 1e-3, "half": 0.1}
"""The relative difference that counts as rounding, by the coarsest precision inside the network."""

_SHARE = 0.5
"""The part of the memory budget that a copy in double precision and its gradients may use."""


@dataclass(frozen=True)
class Behavior:
    """Readouts and kernel of a few samples.

    With the readouts q(x) in R^R of a sample and fixed weights w in R^R, v(x) = <w, q(x)>:

        values[i] = v(x_i),    kernel[i][j] = <d v(x_i) / d theta, d v(x_j) / d theta>

    Attributes:
        samples: The numbers of the samples.
        values: Their weighted readouts.
        kernel: Their kernel.
        precision: The precision of both: "double" if a copy of the network in double precision exists.
    """

    samples: tuple[int, ...]
    values: tuple[float, ...]
    kernel: tuple[tuple[float, ...], ...]
    precision: str

    @classmethod
    def from_json(cls, content: Any) -> "Behavior":
        """Build a behavior from plain values.

        Raises:
            ValueError: The values do not describe a behavior.
        """
        kernel = tuple(tuple(map(float, row)) for row in content["kernel"])
        samples, values = tuple(content["samples"]), tuple(map(float, content["values"]))
        count = len(samples)
        fits = len(values) == len(kernel) == count and all(len(row) == count for row in kernel)
        if not fits or not all(type(i) is int and i >= 0 for i in samples) or content["precision"] not in TOLERANCES:
            raise ValueError("the behavior of the network is damaged")
        return cls(samples, values, kernel, content["precision"])

    def differences(self, other: "Behavior") -> list[str]:
        """Describe in words how two networks differ by more than rounding.

        An entry (i, j) of the kernel is compared on the scale sqrt(K_ii K_jj), a readout on that of the largest readout
        or gradient, whichever is larger: readouts that cancel have no scale of their own.
        """
        tolerance = max(TOLERANCES[self.precision], TOLERANCES[other.precision])
        if self.samples != other.samples:
            return [f"samples compared: {list(self.samples)} there, {list(other.samples)} here"]
        ours, theirs = (torch.tensor(b.kernel, dtype=torch.float64) for b in (self, other))
        norms = torch.maximum(ours.diagonal(), theirs.diagonal()).clamp_min(0).sqrt()
        values = [torch.tensor(b.values, dtype=torch.float64) for b in (self, other)]
        scale = max(float(part.abs().max()) for part in (*values, norms))
        found = []
        for what, error, allowed in (
            ("readouts of a few samples", (values[0] - values[1]).abs(), tolerance * scale + 0 * values[0]),
            ("kernel of a few samples", (ours - theirs).abs(), tolerance * torch.outer(norms, norms)),
        ):
            if not bool((error <= allowed).all()):  # NaN differs
                found.append(f"{what}: off by {float((error / allowed).max()) * tolerance:.1e} of their size")
        return found


def chosen_samples(count: int) -> tuple[int, ...]:
    """Choose the first, the middle and the last of some samples."""
    return tuple(sorted({0, count // 2, count - 1}))


def observe(
    kernel_plan: Plan, readout: ReadoutLike, output: Callable[[Any], Tensor] | None, samples: tuple[int, ...]
) -> Behavior:
    """Run a few samples through the network, if possible through a copy in double precision on the CPU.

    Cost: four forward and backward passes of one sample, and two gradients in memory at a time. The copy is not made
    if it and its gradients would take more than half of the memory budget.

    Raises:
        TangentError: A gradient is not finite.
    """
    data = kernel_plan.left.samples
    batches = [data.batch([index]) for index in samples]
    if not data.in_memory and Digest()(batches) != Digest()([data.batch([index]) for index in samples]):
        raise TangentError(
            "The samples of x change from one read to the next.",
            "Neighboring tiles would belong to different samples.",
            "Leave random transformations out of the Dataset, or read it once into tensors.",
        )
    network = kernel_plan.network
    needed = 8 * (_numbers(network.model.parameters()) + 2 * _numbers(network.parameters.values()))
    if needed + 4 * kernel_plan.left.findings.activation_bytes <= _SHARE * kernel_plan.memory:
        try:
            names = list(network.parameters)
            copy = Network(network.model, readout, parameters=names, output=output, dtype=torch.float64, device="cpu")
            return _observe(copy, [_double(batch) for batch in batches], samples)
        except Exception:  # some models cannot be copied, or fix a precision inside: use their own
            pass
    return _observe(network, batches, samples)


def _observe(network: Network, batches: list[Any], samples: tuple[int, ...]) -> Behavior:
    parameters, values = list(network.parameters.values()), {}
    kernel = torch.zeros(len(samples), len(samples), dtype=torch.float64)

    def features(i: int) -> list[Tensor]:
        with torch.enable_grad():
            readouts = network.values(batches[i], 1, _Precisions(network)).squeeze(0)
            weighted = readouts @ torch.linspace(0.5, 1.5, len(readouts)).to(readouts)
            values[i] = float(weighted.detach())
            return gradient(weighted, parameters)

    last = features(0)
    for i in range(len(samples)):
        kernel[i, i] = _inner(last, last)
        j = (i + 1) % len(samples)
        if j != i and not kernel[i, j]:
            following = features(j)
            kernel[i, j] = kernel[j, i] = _inner(last, following)
            last = following
    if not bool(torch.isfinite(kernel).all()):
        raise TangentError(
            f"The kernel of samples {', '.join(map(str, samples))} holds NaN or infinite values.",
            "A gradient is not finite (for example of a square root at zero), or too large for the precision.",
            "Compute in dtype=torch.float64, or look for the sample with tangentlab.ntk(..., diagonal=True).",
        )
    tolerance = network.tolerance(*TOLERANCES.values())
    precision = next(name for name, known in TOLERANCES.items() if known == tolerance)
    rows = tuple(tuple(row) for row in kernel.tolist())
    return Behavior(samples, tuple(values[i] for i in range(len(samples))), rows, precision)


class _Precisions(TorchFunctionMode, Recording):
    """A torch function mode that records the precisions a network computes in, since a model may cast."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.network.notice([result] if isinstance(result, Tensor) else ())
        correct_gradient(func, result)
        return result


def _inner(one: list[Tensor], two: list[Tensor]) -> float:
    return sum(float(inner(a, b)) for a, b in zip(one, two, strict=True))


def _double(batch: Any) -> Any:
    def convert(value: Any) -> Any:
        return (
            value.to("cpu", torch.float64 if value.is_floating_point() else None)
            if isinstance(value, Tensor)
            else value
        )

    return pytree.tree_map(convert, batch)


def _numbers(tensors: Iterable[Tensor] | Iterable[nn.Parameter]) -> int:
    return sum(tensor.numel() for tensor in tensors)
