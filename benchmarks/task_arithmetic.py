"""``python -m benchmarks.task_arithmetic EXPERIMENT --data-dir DIR``: sums of task vectors.

- rotated: a LeNet is pretrained on upright MNIST digits and fine-tuned on digits rotated by 90 and by 180 degrees.
- pair: a LeNet with 20 outputs is pretrained on 200 images each of MNIST (classes 0 to 9) and Fashion-MNIST (classes 10
  to 19), and fine-tuned on each of the two.

Each seed draws the images, the weights and the minibatches. The network and its linearization get the same weights,
images and minibatches. The rule, fixed before any result: the scale of the sum is chosen from 0, 0.05, ..., 1 on
validation images by the mean accuracy relative to the models of the single tasks, and that number on test images is
compared over seeds, as a paired difference with its 95 % interval by Student's t. Rows are appended to ``--out``; seeds
that are there are not run again.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tangentlab import data, finetune, linearize, models, training

SPEC = {"batch_size": 64, "schedule": training.LinearDecay()}


def _images(source: Any, count: int, seed: int, shift: int = 0, turns: int = 0) -> list[tuple[Tensor, Tensor]]:
    """Draw training, validation and test images, (count, 500, 2000), rotated by quarter turns."""
    order = torch.randperm(len(source.train), generator=torch.Generator().manual_seed(seed)).tolist()
    tests = torch.randperm(len(source.test), generator=torch.Generator().manual_seed(seed)).tolist()[:2000]
    parts = [
        source.train.batch(order[:count]),
        source.train.batch(order[count : count + 500]),
        source.test.batch(tests),
    ]
    return [(torch.rot90(x, turns, (2, 3)).contiguous(), y + shift) for x, y in parts]


def run(experiment: str, folder: Path, seed: int, samples: int, epochs: int) -> dict[str, Any]:
    """Train on both tasks and return the accuracies of one seed."""
    mnist = data.load("mnist", folder)
    spec = training.TrainingSpec(epochs=epochs, optimizer=training.SGD(0.02, momentum=0.9), seed=seed, **SPEC)
    if experiment == "rotated":
        tasks = {f"{90 * turns} degrees": _images(mnist, samples, seed, turns=turns) for turns in (1, 2)}
        base, outputs = _images(mnist, samples, seed + 1000)[0], 10
    else:
        fashion = data.load("fashion_mnist", folder)
        tasks = {
            "MNIST": _images(mnist, samples, seed),
            "Fashion-MNIST": _images(fashion, samples, seed, shift=10),
        }
        few = [_images(source, 200, seed + 1000, shift)[0] for source, shift in ((mnist, 0), (fashion, 10))]
        base, outputs = (torch.cat([x for x, _ in few]), torch.cat([y for _, y in few])), 20
    network = models.build("lenet", input_shape=mnist.input_shape, outputs=outputs, seed=seed)
    training.train(network, base, spec, progress=False)
    chosen = {name: tuple(parts) for name, parts in tasks.items()}
    found = finetune.task_arithmetic(network.eval(), chosen, spec, progress=False)
    row: dict[str, Any] = {"experiment": experiment, "seed": seed, "samples": samples, "epochs": epochs}
    for kind, sums in found.additions.items():
        vectors = found.vectors[kind]
        row[kind] = {"base": sums.base, "alone": sums.alone, **{k: float(v) for k, v in sums.best.items()}}
        row[kind]["cosine"] = vectors[next(iter(tasks))].cosine(vectors[list(tasks)[1]])
        model = network if kind == "network" else linearize(network)
        pairs = {name: (vectors[name], parts[2][0][:500]) for name, parts in tasks.items()}
        grid = finetune.disentanglement_error(model, pairs, np.linspace(-2, 2, 5))
        row[kind]["disentanglement_error"] = grid.mean
    return row


def report(rows: list[dict[str, Any]]) -> str:
    """Return a table of means, and the paired difference with its interval."""
    lines = []
    for experiment in sorted({row["experiment"] for row in rows}):
        chosen = [row for row in rows if row["experiment"] == experiment]
        lines.append(f"{experiment}, {len(chosen)} seeds, {chosen[0]['samples']} images, {chosen[0]['epochs']} epochs")
        for kind in ("network", "linearization"):
            parts = [row[kind] for row in chosen]
            alone = np.mean([np.mean(list(p["alone"].values())) for p in parts])
            numbers = {key: np.mean([p[key] for p in parts]) for key in ("absolute", "normalized", "scale")}
            error = np.mean([p["disentanglement_error"] for p in parts])
            lines.append(
                f"  {kind:14s} alone {alone:.4f}, sum {numbers['absolute']:.4f}, normalized "
                f"{numbers['normalized']:.4f}, scale {numbers['scale']:.2f}, disentanglement error {error:.3f}"
            )
        for key in ("absolute", "normalized"):
            gaps = np.array([row["linearization"][key] - row["network"][key] for row in chosen])
            half = stats.t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / len(gaps) ** 0.5 if len(gaps) > 1 else np.nan
            lines.append(f"  linearization - network, {key}: {gaps.mean():+.4f} +- {half:.4f}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the seeds that are missing, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.task_arithmetic")
    parser.add_argument("experiment", choices=["rotated", "pair"], nargs="*")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "task-arithmetic.jsonl")
    options = parser.parse_args(arguments)
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    for experiment in options.experiment:
        for seed in range(options.seeds):
            if any(row["experiment"] == experiment and row["seed"] == seed for row in rows):
                continue
            rows.append(run(experiment, options.data_dir, seed, options.samples, options.epochs))
            with options.out.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(report(rows), flush=True)
    print(report(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
