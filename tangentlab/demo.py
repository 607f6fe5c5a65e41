"""A demonstration on an embedded data set: a kernel to look at, every experiment in small, and what was found."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from tangentlab import data, experiments, models, plot, training
from tangentlab._extras import require
from tangentlab._files import make_folder
from tangentlab.explorer import Exploration, explore
from tangentlab.kernels import explain, ntk
from tangentlab.report import build
from tangentlab.report.internal import failed, in_numbers, tell

require("matplotlib", "Matplotlib", "plot", "The demonstration draws a kernel.").use("Agg")

SEEDS = 5
# Identities, which one run decides.
NO_REPLICATES = ("ortiz2021/fig9", "ortiz2021/lemma1", "ortiz2021/theorem1")
# The residual networks take most of the time of a tiny preset; what is saved on them pays for the replicates. They are
# kept where a figure is about them alone, and in the smallest table.
_PLAIN: dict[str, Any] = {"architectures": ("fcn", "convnet")}
_SETTINGS: dict[str, dict[str, Any]] = {
    "ortiz2021/fig2": {"models": ("mlp", "lenet")},
    "ortiz2021/fig3": {"seeds": 3},
    "ortiz2021/fig4": {"models": ("lenet",)},
    "ortiz2021/fig8": {"models": ("mlp",)},
    "ortiz2021/fig10": {"models": ("mlp",)},
    "mohamadi2022/fig1": {"depths": (18,), "seeds": 3, "repeats": 1},
    **{f"mohamadi2022/fig{i}": _PLAIN for i in range(2, 13)},
}


def run(out: Path, seed: int, workers: int, kernel_only: bool, console: Console) -> None:
    """Compute a LeNet's kernel on the digits, run every experiment at its smallest scale, and report them on a page.

    Args:
        out: The folder for all results.
        seed: The seed of the weights of the first kernel.
        workers: The number of processes for the experiments.
        kernel_only: Whether to stop after the kernel.
        console: The console to print to.
    """
    make_folder(out)
    show_kernel(out, seed, console)
    if kernel_only:
        return
    require("vl_convert", "The package vl-convert-python", "report", "It draws the figures of experiments.")
    explorer = explore_digits(seed).save(out / "explorer.html")
    console.print(f"Explorer of a kernel before and after training: {explorer}.")
    begin = time.perf_counter()
    runs = out / "runs"
    context = experiments.open_context(runs, workers=workers)
    results = []
    try:
        for experiment in experiments.available():
            chosen = settings(experiment.id)
            results.append(experiments.reproduce(experiment.id, "tiny", out=runs, overrides=chosen, context=context))
            console.print(f"{experiment.id}  {experiment.title}  [dim]({_counted(results[-1]) or 'no claim'})[/]")
    finally:
        context.close()
    page = build(runs, out / "report.html")
    summarize(results, console)
    console.print(
        f"All experiments: {time.perf_counter() - begin:.0f} s. [bold]Open {page} and {explorer} in a browser.[/]"
    )


def settings(name: str) -> dict[str, Any]:
    """Return an experiment's overrides of the tiny preset: five replicates, without networks that take long."""
    if name in NO_REPLICATES:
        return {}
    return {"seeds": SEEDS, **_SETTINGS.get(name, {})}


def summarize(results: Sequence[experiments.Result], console: Console) -> None:
    """Print what was found, on one screen."""
    console.rule("What the papers said, and what was found on the digits")
    console.print(in_numbers(results))
    for finding in tell(results):
        if finding.topic.short:
            text = f"\n[bold]{finding.topic.title}.[/] {finding.topic.said}\n  {finding.sentence}"
            console.print(text, highlight=False)
    against = failed(results)
    if against:
        console.print("\n[bold]What does not hold:[/]")
        for _, text in against:
            console.print(f"- {text}", highlight=False)
    console.print("\nThe page has these with pictures, then the rest, then every claim and experiment.")
    console.rule()


def _counted(result: experiments.Result) -> str:
    """Return how many claims of a result have each verdict: "5 hold, 1 undecided"."""
    plural = {"holds": "hold", "does not hold": "do not hold"}
    counts = result.verdicts()
    return ", ".join(
        f"{counts[name]} {name if counts[name] == 1 else plural.get(name, name)}"
        for name in map(str, experiments.Verdict)
        if counts.get(name)
    )


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


def explore_digits(seed: int = 0) -> Exploration:
    """Train a small LeNet on 400 digits, and compute what the explorer shows of its kernel before and after."""
    digits = data.load("digits", n_train=400)
    model = models.build(
        "lenet", variant="ortiz2021", input_shape=digits.input_shape, outputs=10, init="lecun", seed=seed
    )
    start = {name: value.clone() for name, value in model.state_dict().items()}
    spec = training.TrainingSpec(epochs=15, batch_size=50, optimizer=training.SGD(0.05, momentum=0.9))
    training.train(model, digits, spec, progress=False)
    return explore(
        model.eval(),
        digits.train,
        classes=digits.classes,
        checkpoints={"start": start},
        now="epoch 15",
        title="LeNet on handwritten digits, before and after training",
        progress=False,
    )


def draw(kernel: Tensor, labels: Tensor, eigenvalues: Tensor, path: Path) -> None:
    """Draw the kernel with samples sorted by class, as cosines, beside its spectrum."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    plot.kernel(kernel, labels, ax=left, title="Pseudo-NTK of a LeNet at initialization")
    left.set(xlabel="digit", ylabel="digit")
    plot.spectrum(eigenvalues, ax=right, title="Spectrum")
    figure.savefig(path, dpi=130)
    plt.close(figure)
