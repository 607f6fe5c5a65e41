"""The main job on an embedded data set: a LeNet's kernel on the digits, with a picture."""

import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from tangentlab import data, models, plot
from tangentlab._errors import TangentError
from tangentlab.kernels import explain, ntk

matplotlib.use("Agg")


def run(out: Path, seed: int, console: Console) -> None:
    """Compute, print and draw the pseudo-NTK of a LeNet on all digits.

    Args:
        out: Folder for ``kernel.npy`` and ``kernel.png``.
        seed: Of the weights.
        console: Where to print.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".writable").touch()
        (out / ".writable").unlink()
    except OSError as error:
        raise TangentError(
            f"{out} cannot be written to: {error.strerror}.", "the results go there.", "choose another --out."
        ) from error
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

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    plot.kernel(kernel, labels, ax=left, title="Pseudo-NTK of a LeNet at initialisation")
    left.set(xlabel="digit", ylabel="digit")
    plot.spectrum(eigenvalues, ax=right, title="Spectrum")
    figure.savefig(path, dpi=130)
    plt.close(figure)
