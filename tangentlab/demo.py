"""The main job on an embedded data set: a LeNet's kernel on the digits, with a picture."""

import time
from pathlib import Path

import matplotlib
import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from tangentlab import data, models
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
