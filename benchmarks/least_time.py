"""The least time that an exact kernel can take on this machine: the limit that times are compared with.

    limit = passes + operations / rate

- passes: plain forward and backward passes over all samples, at the fastest of some batch sizes: one forward pass, and
  for each scalar that is read out one backward pass to the output of every layer with parameters. No gradient of a
  parameter is computed and nothing is stored.
- operations: those of matrix products between samples, for N (N + 1) / 2 pairs, each layer in the cheapest exact form
  (:func:`pair_operations`). What a sample needs by itself, such as writing its gradients out, is not counted, nor are
  entrywise products and additions.
- rate: the machine's own, measured in the same run by a square float32 product.

No tool can reach it; it says how much there is left to gain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.cases import Case
from benchmarks.networks import load_network, make_problem

LAYERS = (nn.Linear, nn.Conv2d, nn.BatchNorm2d)
BATCHES = (32, 64, 200, 1000)
"""Samples of a pass; the fastest counts."""


@dataclass(frozen=True)
class LeastTime:
    """The limit of one case.

    Attributes:
        passes: Seconds of the forward and backward passes.
        batch: The batch size that gave them.
        operations: Operations of matrix products between samples.
        rate: Operations per second of the machine.
    """

    passes: float
    batch: int
    operations: float
    rate: float

    @property
    def seconds(self) -> float:
        """The limit."""
        return self.passes + self.operations / self.rate


def least_time(case: Case, repeats: int, seed: int = 0) -> LeastTime:
    """Measure the limit of a case."""
    model, x = network_and_inputs(case, seed)
    passes, batch = fastest_passes(model, x, case, repeats)
    pairs = case.samples * (case.samples + 1) // 2
    return LeastTime(passes, batch, pairs * pair_operations(model, case.readouts, x[:1]), gemm_rate(repeats))


def best_of(repeats: int, *functions: Callable[[], Any]) -> list[float]:
    """Return the fastest of some calls of each function, called in turn so that a slow period affects all of them."""
    best = [float("inf")] * len(functions)
    for function in functions:
        function()
    for _ in range(repeats):
        for i, function in enumerate(functions):
            start = time.perf_counter()
            function()
            best[i] = min(best[i], time.perf_counter() - start)
    return best


def network_and_inputs(case: Case, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """Return a case's network and inputs."""
    problem = make_problem(case, seed)
    return load_network(problem), torch.from_numpy(problem.x)


def passes(model: nn.Module, x: Tensor, case: Case, batch: int) -> None:
    """Run a forward pass, and a backward pass to the outputs of all layers for each scalar of the readout."""
    for part in x.split(batch):
        found: list[Tensor] = []

        def watch(_: nn.Module, __: object, output: Tensor, found: list[Tensor] = found) -> None:
            found.append(output)

        hooks = [module.register_forward_hook(watch) for module in model.modules() if isinstance(module, LAYERS)]
        sums = model(part).sum(0)
        for hook in hooks:
            hook.remove()
        for scalar in sums if case.readout == "full" else [sums.sum()]:
            torch.autograd.grad(scalar, found, retain_graph=True)


def fastest_passes(model: nn.Module, x: Tensor, case: Case, repeats: int) -> tuple[float, int]:
    """Return the seconds of the passes over all samples, and the batch size that is fastest."""
    batches = sorted({min(batch, case.samples) for batch in BATCHES})
    times = best_of(repeats, *(lambda b=batch: passes(model, x, case, b) for batch in batches))
    return min(zip(times, batches, strict=True))


def gemm_rate(repeats: int, size: int = 4096) -> float:
    """Measure the machine's rate of a square float32 matrix product, in operations per second."""
    a, b, c = (torch.randn(size, size) for _ in range(3))
    (seconds,) = best_of(repeats, lambda: torch.mm(a, b, out=c))
    return 2 * size**3 / seconds


def pair_operations(model: nn.Module, readouts: int = 1, sample: Tensor | None = None) -> float:
    """Return the operations of matrix products per pair of samples, each layer in its cheapest exact form.

    Any layer: ``2 R^2 P``, the product of gradients written out. Dense layers: ``2 (d_in + R^2 d_out)``, two Gram
    matrices; a bias needs none of its own. Convolutions, given a sample that shows their sizes: ``2 C pixels^2 + 2 R^2
    d_out T^2``, Gram matrices of the C channels at all pixels and of the output gradients at all T positions.

    Args:
        model: The network.
        readouts: R.
        sample: A batch of one; None to count gradients of convolutions written out.
    """
    total = 0.0
    sizes: dict[nn.Module, tuple[int, int]] = {}

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        sizes[module] = math.prod(inputs[0].shape[2:]), math.prod(output.shape[2:])

    layers = [module for module in model.modules() if isinstance(module, LAYERS)]
    if sample is not None:
        hooks = [layer.register_forward_hook(watch) for layer in layers]
        with torch.no_grad():
            model(sample)
        for hook in hooks:
            hook.remove()
    for layer in layers:
        forms = [2.0 * readouts**2 * sum(parameter.numel() for parameter in layer.parameters())]
        if isinstance(layer, nn.Linear):
            forms.append(2.0 * (layer.in_features + readouts**2 * layer.out_features))
        elif isinstance(layer, nn.Conv2d) and layer in sizes:
            pixels, positions = sizes[layer]
            forms.append(2.0 * (layer.in_channels * pixels**2 + readouts**2 * layer.out_channels * positions**2))
        total += min(forms)
    return total
