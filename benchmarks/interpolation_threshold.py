"""Tables 1 and 2 of samarin2022 at width x1: how much does the solver's accuracy depend on its rounding?

    python -m benchmarks.interpolation_threshold --data-dir DIR               # table 1
    python -m benchmarks.interpolation_threshold --data-dir DIR --shift 7     # table 2, shifted digits

At x1 there are 60,000 training points for 60,941 parameters: the solver is at the interpolation threshold, where the
smallest singular values of the Jacobian decide the result, and with them any ridge. This prints the test accuracy at
half the width and the same ratio of points to parameters, for ridges from the rounding of a float64 kernel, n eps tr K,
down to none at all: the solver works on J, whose rounding is far below.

It also prints a bound of J's rank (``--bound`` prints that alone, which takes seconds at any width). There are fewer
effective parameters than parameters: weights of units that are zero on all points have no gradient, and to each other
unit belongs a direction in which nothing changes, because its ReLU passes a factor on from the weights before it to
those behind it.
"""

import argparse
import os
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from tangentlab import analysis, data, models, ntk, tasks

RATIO = 60_000 / 60_941
TARGETS = (0.0, 1.0)


def rank_bound(network: nn.Module, x: Tensor) -> int:
    """Return an upper bound of the rank of J of a LeNet: parameters less those without effect on these points."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    dense = [layer for layer in layers if isinstance(layer, nn.Linear)]
    active: dict[nn.Linear, tuple[Tensor, Tensor]] = {}
    """Which inputs of a dense layer are not zero on all points, and which of its units have a positive output."""

    def keep(layer: nn.Linear, given: tuple[Tensor], output: Tensor) -> None:
        now = (given[0] != 0).any(0), (output > 0).any(0)
        before = active.get(layer, now)
        active[layer] = (before[0] | now[0], before[1] | now[1])

    hooks = [layer.register_forward_hook(keep) for layer in dense]
    with torch.no_grad():
        for part in x.split(1000):
            network(part)
    for hook in hooks:
        hook.remove()
    rank = sum(parameter.numel() for parameter in network.parameters())
    rank -= sum(layer.out_channels for layer in layers if isinstance(layer, nn.Conv2d))  # a direction of scale each
    for layer in dense:
        inputs, units = (int(part.sum()) for part in active[layer])
        units = layer.out_features if layer is dense[-1] else units  # the output has no ReLU
        rank -= layer.weight.numel() - inputs * units + layer.out_features - units
        rank -= units if layer is not dense[-1] else 0
    return rank


def against_lapack(network: nn.Module, x: Tensor, y: Tensor, found: dict[str, Tensor]) -> str:
    """Return how far a displacement is from LAPACK's, as a sentence."""
    weights = {name: value.detach() for name, value in network.named_parameters()}

    def row(x: Tensor) -> Tensor:
        gradients = grad(lambda weights: functional_call(network, weights, (x[None],)).squeeze())(weights)
        return torch.cat([gradients[name].flatten() for name in weights])

    jacobian = torch.cat([vmap(row)(part) for part in x.split(256)])
    with torch.no_grad():
        right = y.reshape(-1, 1) - network(x)
    rcond = 1e-12
    solution, _, rank, values = torch.linalg.lstsq(jacobian, right, rcond=rcond, driver="gelsd")
    gap = torch.cat([found[name].flatten() for name in weights]) - solution[:, 0]
    return (
        f"  LAPACK (gelsd, rcond {rcond:g}): rank {int(rank):,}, smallest singular value that counts "
        f"{float(values[int(rank) - 1] / values[0]):.1e} of the largest, "
        f"difference of u {float(gap.norm() / solution.norm()):.1e}"
    )


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.interpolation_threshold", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST (default: the usual folders)")
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--pad-to", type=int, default=32)
    parser.add_argument("--shift", type=int, default=0, help="pixels, on the canvas in place of padding")
    parser.add_argument("--canvas", type=int, default=tasks.SHIFTED_MNIST_CANVAS)
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--ridges", nargs="+", type=float, default=[1e4, 100.0, 1.0, 0.0], help="in units of eps tr K")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bound", action="store_true", help="print the bound of the rank alone")
    parser.add_argument("--lapack", action="store_true", help="compare with LAPACK's gelsd on J itself (small widths)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    images = data.load(options.dataset, options.data_dir)
    if options.shift:
        images = tasks.shifted(images, options.shift, canvas=options.canvas)
    else:
        images = images.pad_to(options.pad_to)
    task = tasks.binary(images, [0], values=TARGETS)
    x_test, y_test = (part.double() for part in task.test.batch(torch.arange(len(task.test))))
    for seed in range(options.seeds):
        network = models.build(
            "lenet", width=options.width, input_shape=task.train.input_shape, outputs=1, seed=seed
        ).eval()
        network = network.double()
        parameters = sum(p.numel() for p in network.parameters())
        n = min(int(RATIO * parameters), len(task.train))
        x, y = (part.double() for part in task.train.batch(torch.arange(n)))
        print(
            f"seed {seed}: {n:,} points, {parameters:,} parameters, rank of J at most {rank_bound(network, x):,}",
            flush=True,
        )
        if options.bound:
            continue
        kernel = ntk(network, x, readout=0, progress=False)
        unit = torch.finfo(torch.float64).eps * float(kernel.diagonal().sum())
        for factor in options.ridges:
            begin = time.perf_counter()
            found = analysis.minimum_norm(network, x, y, readout=0, kernel=kernel, ridge=factor * unit, progress=False)
            right = (found.predict(x_test) > 0.5) == (y_test > 0.5)
            print(
                f"seed {seed}, {n:,} points, {parameters:,} parameters, ridge {factor:g} eps tr K: test accuracy "
                f"{100 * float(right.double().mean()):.2f} %, residual {found.fit.residual:.1e}, norm "
                f"{found.norm:.4g}, floor {found.fit.floor:.1e}, {found.fit.iterations} iterations; "
                f"{time.perf_counter() - begin:.0f} s",
                flush=True,
            )
            if options.lapack and not factor:
                print(against_lapack(network, x, y, found.displacement), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
