"""``python -m benchmarks.sketch``: how far a sketched kernel is from the exact one, and what it costs.

- error: for k = 256 to 16,384, on one seed of the projection after the other, the relative error in the Frobenius
  norm next to the stated law sqrt((1 + tr(K)^2 / |K|^2) / k), that of the five leading eigenvalues, and of the
  predictions of kernel ridge regression on held-out samples, relative to the exact kernel's.
- variance: the mean square error of one layer's inner products for four ways to project g a^T to k numbers without
  writing it out, in units of |u|^2 |v|^2 / k.
- time: seconds for 64 images, factors alone and with the sketch, next to a training step.
- cifar10: ResNet18 on two shares of CIFAR-10, and what follows for all of its 50,000 training images.

Real CIFAR-10 is read from ``--data-dir`` (or ``$TANGENTLAB_DATA``).
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

from tangentlab import data, models, ntk
from tangentlab.kernels import sketch
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import make_plan
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._projection import Projection
from tangentlab.kernels.rules._outer import LinearPairs

SIZES = (256, 1024, 4096, 16384)
EIGENVALUES = 5
RIDGE = 1e-2


def network(name: str, outputs: int) -> nn.Module:
    """Return a network at initialization, from a fixed seed."""
    return models.build(name, input_shape=(3, 32, 32), outputs=outputs, seed=0).eval()


def images(count: int, data_dir: str | None) -> tuple[Tensor, Tensor]:
    """Return CIFAR-10 samples, and whether each shows an animal, as +1 and -1."""
    inputs, labels = data.load("cifar10", data_dir=data_dir, n_train=count).train.batch(range(count))
    animal = (labels >= 2) & (labels <= 7)
    return inputs, animal.double() * 2 - 1


def predictions(kernel: Tensor, targets: Tensor) -> Tensor:
    """Fit ridge regression on the first half and predict the second; the ridge is a share of the mean diagonal."""
    half = len(kernel) // 2
    ridge = RIDGE * kernel.diagonal().mean() * torch.eye(half, dtype=kernel.dtype)
    return kernel[half:, :half] @ torch.linalg.solve(kernel[:half, :half] + ridge, targets[:half])


def error(name: str, count: int, outputs: int, seeds: int, sizes: tuple[int, ...], data_dir: str | None) -> None:
    """Print one table of errors."""
    model, (x, y) = network(name, outputs), images(count, data_dir)
    exact = ntk(model, x, readout="pntk").double()
    values, predicted = torch.linalg.eigvalsh(exact)[-EIGENVALUES:], predictions(exact, y)
    spread = float(exact.trace() ** 2 / exact.square().sum())
    print(f"\n{name}, N = {count}, {sum(p.numel() for p in model.parameters()):,} parameters, pNTK; means of {seeds}")
    print(f"tr(K)^2 / |K|^2 = {spread:.2f}\n")
    print("| k | Frobenius | law | ratio | largest eigenvalue | eigenvalues 2 to 5 | predictions | signs that differ |")
    print("|---|---|---|---|---|---|---|---|")
    for k in sizes:
        rows = []
        for seed in range(seeds):
            features = sketch(model, x, k, seed=seed, check=seed == 0).features.double()
            kernel = features @ features.T
            top = (torch.linalg.eigvalsh(kernel)[-EIGENVALUES:] / values - 1).abs()
            found = predictions(kernel, y)
            off = (found - predicted).norm() / predicted.norm()
            flips = (found.sign() != predicted.sign()).double().mean()
            norm = (kernel - exact).norm() / exact.norm()
            rows.append(torch.stack([norm, top[-1], top[:-1].mean(), off, flips]))
        norm, first, others, off, flips = torch.stack(rows).mean(0).tolist()
        law = ((1 + spread) / k) ** 0.5
        print(
            f"| {k:,} | {norm:.4f} | {law:.4f} | {norm / law:.2f} | {first:.4f} | {others:.4f} | {off:.3f} "
            f"| {100 * flips:.1f} % |",
            flush=True,
        )


def variance(k: int = 256, seeds: int = 400) -> None:
    """Print the mean square errors of <S u, S v> for u = G^T A with T positions, by four ways to project."""
    print(
        f"\n| T | u, v | full Gaussian | r^T G s | Kronecker | here | (law) |  k = {k}, {seeds} seeds\n"
        + "|---" * 7
        + "|"
    )
    for positions in (1, 16):
        for same in (True, False):
            draw = torch.Generator().manual_seed(0)
            a = torch.randn(2, positions, 64, generator=draw).relu().double()
            g = torch.randn(2, positions, 32, generator=draw).double()
            if same:
                a[1], g[1] = a[0], g[0]
            factor = LinearPairs(g.unsqueeze(1), 0.0, a)
            u = torch.einsum("nto,nti->noi", g, a)
            inner, unit = (u[0] * u[1]).sum(), u[0].norm() ** 2 * u[1].norm() ** 2 / k
            errors: dict[str, list[Tensor]] = {"full": [], "pairs": [], "kronecker": [], "here": []}
            for seed in range(seeds):
                noise = torch.Generator().manual_seed(seed)

                def normal(*shape: int, noise: torch.Generator = noise) -> Tensor:
                    return torch.randn(*shape, generator=noise, dtype=torch.float64)

                side = int(k**0.5)
                r, s = normal(32, side) / side**0.5, normal(64, side) / side**0.5
                ways = {
                    "full": u.flatten(1) @ normal(u[0].numel(), k) / k**0.5,
                    "pairs": ((g @ normal(32, k)) * (a @ normal(64, k))).sum(1) / k**0.5,
                    "kronecker": torch.einsum("nti,ntj->nij", g @ r, a @ s).flatten(1),
                    "here": Projection(k, seed, 1, torch.float64, torch.device("cpu"))([(("w",), factor)], 2, 1)[:, 0],
                }
                for way, features in ways.items():
                    errors[way].append(((features[0] * features[1]).sum() - inner).square())
            found = " | ".join(f"{float(torch.stack(e).mean() / unit):.2f}" for e in errors.values())
            law = 1 + float(inner**2 / (unit * k))
            print(f"| {positions} | {'the same' if same else 'different'} | {found} | {law:.2f} |", flush=True)


def timing(k: int, rounds: int) -> None:
    """Print seconds for 64 images of ResNet18: a training step, factors without and with the sketch."""
    torch.manual_seed(0)
    x, model = torch.randn(64, 3, 32, 32), network("resnet18", 10)
    plan = make_plan(Problem.pose(model, x, options=Options("pntk"), kind="sketch", features=k))
    largest = max(p.numel() for p in plan.network.parameters.values())
    projection = Projection(k, 0, largest, torch.float32, torch.device("cpu"))
    factorizer = plan.factorizer(plan.left, plan.budget(0))
    factorizer.batch_size = 8

    def step() -> None:
        model(x).square().mean().backward()

    def factors() -> None:
        for rows in factorizer.batches(range(64)):
            for _ in factorizer.batch(plan.left.samples, rows):
                pass

    def projected() -> None:
        for rows in factorizer.batches(range(64)):
            named = ((plan.left.groups[i].parameters, p) for i, p in factorizer.batch(plan.left.samples, rows))
            projection(named, len(rows), 1)

    best = {}
    for call in (step, factors, projected):
        call()
        times = []
        for _ in range(rounds):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        best[call.__name__] = min(times)
    print(
        f"\nResNet18, 64 images, k = {k:,}, seconds: training step {best['step']:.2f}, factors {best['factors']:.2f}, ",
        end="",
    )
    print(
        f"factors and sketch {best['projected']:.2f} ({best['projected'] / best['factors']:.2f} times factors)",
        flush=True,
    )


def cifar10(k: int, counts: tuple[int, int], data_dir: str | None) -> None:
    """Print seconds for two numbers of images, and the line through them at 50,000."""
    model, seconds = network("resnet18", 10), []
    for count in counts:
        x, _ = images(count, data_dir)
        start = time.perf_counter()
        features = sketch(model, x, k, progress=False).features
        seconds.append(time.perf_counter() - start)
        size = features.nbytes / 2**20
        print(f"\nResNet18, {count:,} images, k = {k:,}: {seconds[-1]:.1f} s, {size:.0f} MiB of features", flush=True)
    slope = (seconds[1] - seconds[0]) / (counts[1] - counts[0])
    total = seconds[1] + slope * (50_000 - counts[1])
    print(f"{1000 * slope:.1f} ms an image; all 50,000 at that rate: {total / 60:.0f} minutes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["lenet", "resnet18", "variance", "time"])
    parser.add_argument("--samples", type=int, nargs=2, default=(256, 4096), help="for cifar10")
    parser.add_argument("--data-dir")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if "lenet" in options.what:
        error("lenet", 1000, 10, options.seeds, SIZES, options.data_dir)
    if "resnet18" in options.what:
        error("resnet18", 64, 10, options.seeds, SIZES, options.data_dir)
    if "variance" in options.what:
        variance()
    if "time" in options.what:
        for k in (256, 4096, 16384):
            timing(k, options.seeds)
    if "cifar10" in options.what:
        cifar10(4096, tuple(options.samples), options.data_dir)


if __name__ == "__main__":
    main()
