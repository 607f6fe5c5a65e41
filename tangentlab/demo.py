"""The main job on an embedded data set: a kernel with its picture, every experiment in small, and the page."""

import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from tangentlab import data, experiments, models
from tangentlab.experiments._files import make_folder
from tangentlab.kernels import explain, ntk
from tangentlab.report import build

matplotlib.use("Agg")


def run(out: Path, seed: int, workers: int, kernel_only: bool, console: Console) -> None:
    """A LeNet's kernel on the digits, then every experiment at its smallest scale, and a page of them all.

    Args:
        out: Folder for everything.
        seed: Of the weights of the first kernel.
        workers: Processes for the experiments.
        kernel_only: Stop after the kernel.
        console: Where to print.
    """
    make_folder(out)
    show_kernel(out, seed, console)
    if kernel_only:
        return
    begin = time.perf_counter()
    runs = out / "runs"
    context = experiments.open_context(runs, workers=workers)
    try:
        for experiment in experiments.available():
            result = experiments.reproduce(experiment.id, "tiny", out=runs, context=context)
            verdicts = ", ".join(f"{number} {name}" for name, number in result.verdicts().items() if number)
            console.print(f"{experiment.id}  {experiment.title}  [dim]({verdicts or 'no claim'})[/]")
    finally:
        context.close()
    page = build(runs, out / "report.html")
    console.print(f"All experiments: {time.perf_counter() - begin:.0f} s. [bold]Open {page} in a browser.[/]")


def show_kernel(out: Path, seed: int, console: Console) -> None:
    """Compute, print and draw the pseudo-NTK of a LeNet on all digits: ``kernel.npy`` and ``kernel.png``."""
    loaded = data.load("digits")
    digits = loaded.train
    inputs, labels = digits.batch(range(len(digits)))
    model = models.build(
        "lenet", variant="ortiz2021", input_shape=loaded.input_shape, outputs=10, init="lecun", seed=seed
    )
    model = model.eval().double()
    inputs = inputs.double()
    console.print(f"LeNet, {sum(p.numel() for p in model.parameters()):,} parameters, on {len(inputs)} digits.")
    table = explain(model, inputs, readout="pntk")
    table["operation"] = table.operation.str.rpartition(".")[2]
    print(table.drop(columns="parameters").to_string(index=False))
    start = time.perf_counter()
    kernel = ntk(model, inputs, readout="pntk")
    seconds = time.perf_counter() - start
    console.print(f"Pseudo-NTK {tuple(kernel.shape)}: {seconds:.2f} s, symmetric, exact.")
    eigenvalues = torch.linalg.eigvalsh(kernel).flip(0)
    share = float(eigenvalues[:10].sum() / eigenvalues.sum())
    console.print(f"The ten largest of {len(eigenvalues)} eigenvalues hold {share:.1%} of the trace.")
    np.save(out / "kernel.npy", kernel.numpy())
    draw(kernel, labels, eigenvalues, out / "kernel.png")
    console.print(f"Picture: {out / 'kernel.png'}; kernel: {out / 'kernel.npy'}.")


def draw(kernel: Tensor, labels: Tensor, eigenvalues: Tensor, path: Path) -> None:
    """The kernel with samples sorted by class, as cosines, beside its spectrum."""
    import matplotlib.pyplot as plt

    order = labels.argsort(stable=True)
    scale = kernel.diagonal().sqrt()
    cosines = (kernel / scale / scale[:, None])[order][:, order]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    image = left.imshow(cosines, cmap="viridis", interpolation="nearest")
    edges = torch.bincount(labels).cumsum(0)
    middles = edges - torch.bincount(labels) / 2
    left.set_xticks(middles, range(len(edges)))
    left.set_yticks(middles, range(len(edges)))
    left.set(title="Pseudo-NTK of a LeNet at initialisation", xlabel="digit", ylabel="digit")
    figure.colorbar(image, ax=left, label=r"$K_{nm} / \sqrt{K_{nn} K_{mm}}$")
    positive = eigenvalues.clamp(min=float(eigenvalues[0]) * 1e-9)
    right.loglog(torch.arange(1, len(positive) + 1), positive / positive[0], color="#3b6fb6", lw=1.8)
    right.set(title="Spectrum", xlabel="index $j$", ylabel=r"$\lambda_j / \lambda_1$")
    right.grid(alpha=0.3, which="both")
    for side in ("top", "right"):
        right.spines[side].set_visible(False)
    figure.savefig(path, dpi=130)
    plt.close(figure)
