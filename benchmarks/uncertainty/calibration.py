"""Calibration on real data: a trained network, temperature scaling, and its posterior from few training samples.

    python -m benchmarks.uncertainty.calibration --data-dir DIR --out FOLDER

trains a LeNet (1.5 times as wide, 12 epochs of SGD) on 55,000 images of Fashion-MNIST and measures, on the last 9,000
test images, accuracy, negative log-likelihood and expected calibration error (15 bins) of

- the network itself;
- temperature scaling;
- its posterior from 50 to 1,600 training images (``--points``) with each output's own kernel (``per_class``), from
  1,600 with the pNTK and from 200 with the full kernel (``--forms``);
- with ``--forms sketch``, the posterior from all 55,000 images in 512 sketched features.

Probabilities of a posterior are probit's; ``ece_sampling`` and ``nll_sampling`` are those of 1,024 draws. The
temperature and the prior precision are chosen by the likelihood of 1,000 images: "held-out" images of the training
split, which the network was not trained on, or the first images of the "test" split, which are harder than those of the
training split and are not measured. ``floor`` is the calibration error that the probabilities would have on as many
images if they were right, with its 95 % interval (rows measured before it was added have none). "training" is the
prior precision of training (weight decay times the number of training images, scaled to the subset as laplace-torch
does).

The rule, fixed before any posterior was measured: the 0.7 % that laplace-torch documents for 1,600 points
(``diagonal_kernel=True``, its own network, all 10,000 test images) are reached if the calibration error of
"per_class, 1600 points, test" is 0.7 % or less in the mean over the seeds. All other rows are reported as found.

Also measured is the area under the ROC curve by which the entropy of the probabilities tells images of Fashion-MNIST
from those of MNIST, and from Fashion-MNIST shifted by up to 6 pixels. Rows are printed and added to
FOLDER/calibration.csv as they finish; rows that are there are not computed again.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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
FORMS = ["per_class", "pntk", "full"]
WAYS = ["test", "held-out", "training"]


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
    assert fitted.test.normalization is not None
    normalise = fitted.test.normalization
    return Inputs(
        fitted.test.batch(rows), normalise(other.images[:OUTSIDE], torch.float32), normalise(moved, torch.float32)
    )


def _moved(image: Tensor, down: int, right: int) -> Tensor:
    """Move an image on a black background."""
    canvas = torch.nn.functional.pad(image, (6, 6, 6, 6))
    height, width = image.shape[-2:]
    return canvas[..., 6 - down : 6 - down + height, 6 - right : 6 - right + width]


def measures(inside: Tensor, other: Tensor, shifted: Tensor, labels: Tensor) -> dict[str, float]:
    """Measure class probabilities of the test images, of another data set and of shifted images."""
    found, floor = posterior.calibration(inside, labels), posterior.calibration_floor(inside)
    own = _entropy(inside)[-OUTSIDE:]
    result = {"accuracy": found.accuracy, "nll": found.nll, "ece": found.ece}
    result.update({"floor": floor.mean, "floor_low": floor.low, "floor_high": floor.high})
    for name, outside in (("other", _entropy(other)), ("shifted", _entropy(shifted))):
        truth = torch.cat([torch.zeros(len(own)), torch.ones(len(outside))])
        result[f"auroc_{name}"] = float(roc_auc_score(truth, torch.cat([own, outside])))
    return result


def together(beliefs: Sequence[posterior.Posterior], x: Tensor) -> list[posterior.Prediction]:
    """Predict with posteriors that differ in the prior precision only; their kernels are computed once."""
    forms = [belief._form for belief in beliefs]
    for form in forms[1:]:
        form.tangent = forms[0].tangent
        if hasattr(form, "x"):
            form.x = forms[0].x
    parts: list[list[tuple[Tensor, Tensor]]] = [[] for _ in beliefs]
    for batch in beliefs[0]._batches(x):
        with forms[0].tangent.remembering():
            for belief, own in zip(beliefs, parts, strict=True):
                own.append(belief._at(batch, "blocks"))
    return [posterior.Prediction(*(torch.cat([part[i] for part in own]) for i in (0, 1))) for own in parts]


def _entropy(probabilities: Tensor) -> Tensor:
    return -(probabilities * probabilities.clamp(min=1e-300).log()).sum(1)


class Table:
    """Rows in a CSV file, each computed once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = pd.read_csv(path) if path.exists() else pd.DataFrame({"dataset": [], "seed": [], "what": []})

    def add(self, dataset: str, seed: int, names: Sequence[str], compute: Callable[[], list[dict[str, Any]]]) -> None:
        """Compute and print rows, unless the file has them all."""
        known = self.rows[(self.rows["dataset"] == dataset) & (self.rows["seed"] == seed)]["what"]
        if set(names) <= set(known):
            return
        begin = time.process_time()
        found = compute()
        seconds = time.process_time() - begin
        for name, values in zip(names, found, strict=True):
            line = {"dataset": dataset, "seed": seed, "what": name, **values, "seconds": round(seconds, 1)}
            self.rows = pd.concat([self.rows, pd.DataFrame([line])], ignore_index=True)
            shown = ", ".join(f"{k} {v:.4f}" if isinstance(v, float) else f"{k} {v}" for k, v in line.items())
            print(shown, flush=True)
        write_text(self.path, self.rows.to_csv(index=False, float_format="%.6g"))


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
    parser.add_argument("--forms", nargs="+", choices=[*FORMS, "sketch"], default=FORMS)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS, help="how the prior precision is chosen")
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

    every = torch.cat([images.test[0], images.other, images.shifted])
    sizes = [len(images.test[0]), OUTSIDE, OUTSIDE]

    def measured(probabilities: Tensor) -> dict[str, float]:
        return measures(*probabilities.split(sizes), images.test[1])

    rows = torch.arange(CHOSEN_ON)
    chosen_on = {"test": fitted.test.batch(rows), "held-out": fitted.validation.batch(rows)}
    table.add(dataset, seed, ["network"], lambda: [measured(torch.softmax(logits(every), 1))])
    for how, (images_on, classes) in chosen_on.items():
        heat = posterior.temperature(logits(images_on), classes)
        found = lambda heat=heat: [{**measured(torch.softmax(logits(every) / heat, 1)), "chosen": heat}]  # noqa: E731
        table.add(dataset, seed, [f"temperature scaling, {how}"], found)
    x, y = fitted.train.batch(torch.arange(len(fitted.train)))

    def believed(ways: dict[str, dict[str, Any]], **choice: Any) -> list[dict[str, Any]]:
        beliefs = [
            posterior.fit(fitted.model, x, y, seed=seed, progress=False, **choice, **way) for way in ways.values()
        ]
        lines = []
        for belief, prediction in zip(beliefs, together(beliefs, every), strict=True):
            drawn = posterior.calibration(prediction.probabilities("sampling")[: sizes[0]], images.test[1])
            lines.append({
                **measured(prediction.probabilities("probit")),
                "nll_sampling": drawn.nll,
                "ece_sampling": drawn.ece,
                "chosen": belief.prior_precision,
                "about": belief.about,
            })  # fmt: skip
        return lines

    held_out: dict[str, dict[str, Any]] = {
        how: {"validation": pair} for how, pair in chosen_on.items() if how in options.ways
    }
    wanted = {"per_class": options.points, "pntk": [max(options.points)], "full": [200]}
    for readout in (form for form in FORMS if form in options.forms):
        for points in wanted[readout]:
            decay = WEIGHT_DECAY * len(x)
            training = {"prior_precision": decay * len(x) / points, "weight": 1.0}
            ways = {**held_out, **({"training": training} if "training" in options.ways else {})}
            names = [f"posterior, {readout}, {points} points, {how}" for how in ways]
            table.add(dataset, seed, names, partial(believed, ways, readout=readout, subset=points))
    if "sketch" in options.forms:
        names = [f"posterior, sketch 512, all points, {how}" for how in held_out]
        table.add(dataset, seed, names, partial(believed, held_out, method="sketch", k=512))


if __name__ == "__main__":
    raise SystemExit(main())
