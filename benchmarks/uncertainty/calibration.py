"""Calibration on real data: a trained network, temperature scaling, and its posterior from few training samples.

    python -m benchmarks.uncertainty.calibration --data-dir DIR --out FOLDER

trains a LeNet (1.5 times as wide, 12 epochs of SGD) on 55,000 images of Fashion-MNIST and measures, on the 10,000 test
images, accuracy, negative log-likelihood and expected calibration error (15 bins) of

- the network itself;
- temperature scaling, the temperature chosen on 5,000 held-out images;
- its posterior from 50, 200 and 800 training images (``--points``), for the kernels ``per_class``, ``pntk`` and ``full``
  (``--readouts``; the last up to 200 images by default), the prior precision chosen by the likelihood of 1,000 of the
  held-out images, and by the marginal likelihood;
- the posterior from all 55,000 images in 512 sketched features,

and the area under the ROC curve by which the entropy of the probabilities tells images of Fashion-MNIST from those of
MNIST, and from Fashion-MNIST shifted by up to 6 pixels. Rows are printed and added to FOLDER/calibration.csv as they
finish; rows that are there are not computed again.
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

from benchmarks.uncertainty.networks import Trained, trained
from tangentlab import data, posterior
from tangentlab._files import write_text

OUTSIDE = 2_000
"""Images of each other distribution."""
CHOSEN_ON = 1_000
"""Held-out images that choose the prior precision; temperature scaling has all of them."""


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
    rows = torch.arange(min(tests, len(fitted.test)))
    generator = torch.Generator().manual_seed(0)
    moved = fitted.test.images[:OUTSIDE].clone()
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
    own = _entropy(inside)[:OUTSIDE]
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
    parser.add_argument("--points", nargs="+", type=int, default=[50, 200, 800])
    parser.add_argument("--readouts", nargs="+", default=["per_class", "pntk", "full"])
    parser.add_argument("--full-points", type=int, default=200, help="largest subset for the full kernel")
    parser.add_argument("--tests", type=int, default=10_000)
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

    held, classes = fitted.validation.batch(torch.arange(len(fitted.validation)))
    heat = posterior.temperature(logits(held), classes)
    table.row(dataset, seed, "network", lambda: measures(lambda x: torch.softmax(logits(x), 1), images))
    table.row(
        dataset,
        seed,
        "temperature scaling",
        lambda: {**measures(lambda x: torch.softmax(logits(x) / heat, 1), images), "chosen": heat},
    )
    x, y = fitted.train.batch(torch.arange(len(fitted.train)))
    chosen_on = (held[:CHOSEN_ON], classes[:CHOSEN_ON])

    def believed(link: str = "probit", **choice: Any) -> dict[str, Any]:
        belief = posterior.fit(fitted.model, x, y, seed=seed, progress=False, **choice)
        return {
            **measures(lambda x: belief.predict_proba(x, link), images),
            "chosen": belief.prior_precision,
            "about": belief.about,
        }

    for readout in options.readouts:
        for points in options.points:
            if readout == "full" and points > options.full_points:
                continue
            for how, choice in (("held-out", {"validation": chosen_on}), ("evidence", {})):
                name = f"posterior, {readout}, {points} points, {how}"
                given = {"readout": readout, "subset": points, **choice}
                table.row(dataset, seed, name, lambda given=given: believed(**given))
    for how, choice in (("held-out", {"validation": chosen_on}), ("evidence", {})):
        given = {"method": "sketch", "k": 512, **choice}
        table.row(dataset, seed, f"posterior, sketch 512, all points, {how}", lambda given=given: believed(**given))


if __name__ == "__main__":
    raise SystemExit(main())
