"""A demonstration on an embedded data set: a kernel with its picture, every experiment at tiny scale, and the page."""

import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from tangentlab import data, experiments, models, plot
from tangentlab._files import make_folder
from tangentlab.kernels import explain, ntk
from tangentlab.report import build

matplotlib.use("Agg")


def run(out: Path, seed: int, workers: int, kernel_only: bool, console: Console) -> None:
    """Compute a LeNet's kernel on the digits, run every experiment at its smallest scale, and write a page of all
    results.

    Args:
        out: Folder for everything.
        seed: Seed of the weights of the first kernel.
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
    """Draw the kernel with samples sorted by class, as cosines, next to its spectrum."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    plot.kernel(kernel, labels, ax=left, title="Pseudo-NTK of a LeNet at initialization")
    left.set(xlabel="digit", ylabel="digit")
    plot.spectrum(eigenvalues, ax=right, title="Spectrum")
    figure.savefig(path, dpi=130)
    plt.close(figure)
