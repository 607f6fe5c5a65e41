"""``python -m benchmarks.small_kernels``: kernels of few samples beside what a user would write.

One logit or the sum of all of them, N from 2 to 32: ``tangentlab.ntk`` with its probe and checks, a plain loop (one
``autograd.grad`` per sample, rows stacked, one product) and ``torch.func`` (``vmap`` of ``grad``), called in turn.
"""

from __future__ import annotations

import argparse
import os
import sys

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.cases import CASES
from benchmarks.least_time import best_of, network_and_inputs
from benchmarks.report import table

SIZES = (2, 4, 8, 16, 32)


def by_loop(model: nn.Module, x: Tensor) -> Tensor:
    """Compute the kernel by one backward pass per sample."""
    parameters = list(model.parameters())
    rows = [torch.autograd.grad(_summed(model(sample)), parameters) for sample in x.split(1)]
    jacobian = torch.stack([torch.cat([part.reshape(-1) for part in row]) for row in rows])
    return jacobian @ jacobian.T


def by_torch_func(model: nn.Module, x: Tensor) -> Tensor:
    """Compute the kernel by per-sample gradients of ``torch.func``."""
    state = {name: value.detach() for name, value in [*model.named_parameters(), *model.named_buffers()]}
    names = [name for name, _ in model.named_parameters()]
    fixed = {name: value for name, value in state.items() if name not in names}

    def value(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        return _summed(functional_call(model, parameters | fixed, (sample[None],)))

    gradients = vmap(grad(value), (None, 0))({name: state[name] for name in names}, x)
    jacobian = torch.cat([gradient.flatten(1) for gradient in gradients.values()], 1)
    return jacobian @ jacobian.T


def _summed(outputs: Tensor) -> Tensor:
    return outputs.sum() / outputs.shape[1] ** 0.5


def main(arguments: list[str] | None = None) -> int:
    """Measure and print a table."""
    import tangentlab

    cases = ("mlp", "lenet-1", "resnet18")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.small_kernels", description=__doc__.split("\n\n")[1])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(cases), metavar="CASE")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), metavar="N")
    parser.add_argument("--repeats", type=int, default=50, help="timed calls, of which the best counts")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rows = []
    for name in options.cases:
        model, every = network_and_inputs(CASES[name].with_samples(max(options.sizes)))
        for size in options.sizes:
            x = every[:size]
            times = best_of(
                options.repeats,
                lambda model=model, x=x: tangentlab.ntk(model, x, readout="pntk", progress=False),
                lambda model=model, x=x: by_loop(model, x),
                lambda model=model, x=x: by_torch_func(model, x),
            )
            ratio = min(times[1:]) / times[0]
            rows.append([name, str(size), *(f"{1e3 * seconds:.1f}" for seconds in times), f"{ratio:.2f}"])
    print(
        table(["network", "N", "tangentlab, ms", "loop, ms", "torch.func, ms", "better of the two / tangentlab"], rows)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
