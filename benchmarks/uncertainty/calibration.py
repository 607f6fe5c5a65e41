"""Calibration on real data: a trained network, temperature scaling, and its posterior from few training samples.

    python -m benchmarks.uncertainty.calibration --data-dir DIR --out FOLDER

trains a LeNet (1.5 times as wide, 12 epochs of SGD) on 55,000 images of Fashion-MNIST and measures, on the last 9,000
test images, accuracy, negative log-likelihood and expected calibration error (15 bins) of

- the network itself;
- temperature scaling;
- its posterior from 50 to 1,600 training images (``--points``) with each output's own kernel, from 800 with the pNTK
  and from 200 with the full kernel;
- the posterior from all 55,000 images in 512 sketched features.

The temperature and the prior precision are chosen by the likelihood of 1,000 images: "held-out" images of the training
split, which the network was not trained on, or the first images of the "test" split, which are harder than those of the
training split and are not measured. "training" is the prior precision of training (weight decay times the number of
training images, scaled to the subset as laplace-torch does).

Also measured is the area under the ROC curve by which the entropy of the probabilities tells images of Fashion-MNIST
from those of MNIST, and from Fashion-MNIST shifted by up to 6 pixels. Rows are printed and added to
FOLDER/calibration.csv as they finish; rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

from benchmarks.uncertainty.networks import WEIGHT_DECAY, Trained, trained
from tangentlab import data, posterior
from tangentlab._files import write_text

OUTSIDE = 1_000
"""Images of each other distribution."""
CHOSEN_ON = 1_000
"""Images that choose the temperature and the prior precision."""


@dataclass(frozen=True)
class Inputs:
    """The images that everything is measured on, as inputs of the network.

    Attributes:
        test: Test images, (M, 1, 28, 28), and their classes.
        other: Images of another data set.
        shifted: Test images moved by up to 6 pixels in each direction.
    """

    test: tuple[Tensor, Tensor]
    other: Tensor
    shifted: Tensor


def inputs(fitted: Trained, other: data.Examples, tests: int) -> Inputs:
    """Return all inputs; other images are normalized as the network's own."""
    rows = torch.arange(CHOSEN_ON, min(CHOSEN_ON + tests, len(fitted.test)))
    generator = torch.Generator().manual_seed(0)
    moved = fitted.test.images[-OUTSIDE:].clone()
    for image, (down, right) in zip(moved, torch.randint(-6, 7, (OUTSIDE, 2), generator=generator), strict=True):
        image.copy_(_moved(image, int(down), int(right)))
    assert fitted.test.normalisation is not None
    normalise = fitted.test.normalisation
    return Inputs(
        fitted.test.batch(rows), normalise(other.images[:OUTSIDE], torch.float32), normalise(moved, torch.float32)
    )


def _moved(image: Tensor, down: int, right: int) -> Tensor:
    """Move an image on a black background."""
    canvas = torch.nn.functional.pad(image, (6, 6, 6, 6))
    height, width = image.shape[-2:]
    return canvas[..., 6 - down : 6 - down + height, 6 - right : 6 - right + width]


def measures(probabilities: Any, images: Inputs) -> dict[str, float]:
    """Measure a function from inputs to class probabilities."""
    inside = probabilities(images.test[0])
    found = posterior.calibration(inside, images.test[1])
    own = _entropy(inside)[-OUTSIDE:]
    result = {"accuracy": found.accuracy, "nll": found.nll, "ece": found.ece}
    for name, x in (("other", images.other), ("shifted", images.shifted)):
        outside = _entropy(probabilities(x))
        truth = torch.cat([torch.zeros(len(own)), torch.ones(len(outside))])
        result[f"auroc_{name}"] = float(roc_auc_score(truth, torch.cat([own, outside])))
    return result


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * probabilities.clamp(min=1e-300).log()).sum(1)


class Table:
    """Rows in a CSV file, each computed once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = pd.read_csv(path) if path.exists() else pd.DataFrame({"dataset": [], "seed": [], "what": []})

    def row(self, dataset: str, seed: int, what: str, compute: Any) -> None:
        """Compute and print a row, unless the file has it."""
        known = (self.rows["dataset"] == dataset) & (self.rows["seed"] == seed) & (self.rows["what"] == what)
        if known.any():
            return
        begin = time.process_time()
        found = compute()
        line = {"dataset": dataset, "seed": seed, "what": what, **found, "seconds": time.process_time() - begin}
        self.rows = pd.concat([self.rows, pd.DataFrame([line])], ignore_index=True)
        write_text(self.path, self.rows.to_csv(index=False))
        shown = ", ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items())
        print(shown, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uncertainty.calibration", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of FashionMNIST and MNIST")
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoints and of calibration.csv")
    parser.add_argument("--datasets", nargs="+", choices=["fashion_mnist", "mnist"], default=["fashion_mnist"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--points", nargs="+", type=int, default=[200, 800, 50, 1600])
    parser.add_argument("--tests", type=int, default=9_000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    table = Table(options.out / "calibration.csv")
    for dataset in options.datasets:
        other = data.load("mnist" if dataset == "fashion_mnist" else "fashion_mnist", options.data_dir).test
        for seed in options.seeds:
            fitted = trained(dataset, seed, options.data_dir, options.out)
            _measure(table, dataset, seed, fitted, inputs(fitted, other, options.tests), options)
    return 0


def _measure(table: Table, dataset: str, seed: int, fitted: Trained, images: Inputs, options: Any) -> None:
    def logits(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([fitted.model(part) for part in x.split(512)]).double()

    rows = torch.arange(CHOSEN_ON)
    chosen_on = {"test": fitted.test.batch(rows), "held-out": fitted.validation.batch(rows)}
    table.row(dataset, seed, "network", lambda: measures(lambda x: torch.softmax(logits(x), 1), images))
    for how, (images_on, classes) in chosen_on.items():
        heat = posterior.temperature(logits(images_on), classes)
        table.row(
            dataset, seed, f"temperature scaling, {how}",
            lambda heat=heat: {**measures(lambda x: torch.softmax(logits(x) / heat, 1), images), "chosen": heat},
        )  # fmt: skip
    x, y = fitted.train.batch(torch.arange(len(fitted.train)))

    def believed(link: str = "probit", **choice: Any) -> dict[str, Any]:
        belief = posterior.fit(fitted.model, x, y, seed=seed, progress=False, **choice)
        return {
            **measures(lambda x: belief.predict_proba(x, link), images),
            "chosen": belief.prior_precision,
            "about": belief.about,
        }

    decay = WEIGHT_DECAY * len(x)
    sizes = [("per_class", points) for points in options.points] + [("full", 200), ("pntk", 800)]
    for readout, points in sizes:
        given = {"readout": readout, "subset": points}
        name = f"posterior, {readout}, {points} points"
        ways: dict[str, dict[str, Any]] = {how: {"validation": pair} for how, pair in chosen_on.items()}
        ways["training"] = {"prior_precision": decay * len(x) / points, "weight": 1.0}
        for how, way in ways.items():
            table.row(dataset, seed, f"{name}, {how}", lambda g=given, w=way: believed(**g, **w))
    for how, pair in chosen_on.items():
        name = f"posterior, sketch 512, all points, {how}"
        table.row(dataset, seed, name, lambda pair=pair: believed(method="sketch", k=512, validation=pair))


if __name__ == "__main__":
    raise SystemExit(main())
