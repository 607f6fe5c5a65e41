"""What limits the calibration error: the samples it is measured on, and those that choose the prior precision.

    python -m benchmarks.uncertainty.splits --data-dir DIR --out FOLDER

takes the network of seed 0 of ``benchmarks.uncertainty.calibration`` and its posterior (``per_class``, ``--points``
training images) at 11 prior precisions. Many times, random test images choose by their likelihood, and the others are
measured. Candidates are temperature scaling; the posterior, by probit and by laplace-torch's probit ("diagonal"); the
posterior with a temperature, E[softmax(f / T)], chosen together with the prior precision ("joint"); and the posterior
whose prior precision is the best for the measured images themselves ("best"), which are not known in use. The floor is
the calibration error that the posterior's probabilities would have if they were right.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.uncertainty.calibration import together
from benchmarks.uncertainty.networks import trained
from tangentlab import posterior

PRECISIONS = [100 * 10 ** (i / 5) for i in range(11)]
TEMPERATURES = [0.6 + 0.1 * i for i in range(9)]
SCALINGS = [0.9 + 0.025 * i for i in range(30)]


def predictions(data_dir: Path, out: Path, points: int) -> dict[str, Any]:
    """Compute outputs of the network and of its posteriors on all test images, or read them from an earlier run."""
    file = out / f"predictions-{points}.pt"
    if not file.exists():
        fitted = trained("fashion_mnist", 0, data_dir, out)
        x, y = fitted.train.batch(torch.arange(len(fitted.train)))
        new, classes = fitted.test.batch(torch.arange(len(fitted.test)))
        beliefs = [
            posterior.fit(fitted.model, x, y, readout="per_class", subset=points, prior_precision=p, progress=False)
            for p in PRECISIONS
        ]
        found = [(one.mean, one.covariance.float()) for one in together(beliefs, new)]
        torch.save({"preds": found, "logits": found[0][0], "y": classes}, file)
    content: dict[str, Any] = torch.load(file)
    return content


def candidates(content: dict[str, Any]) -> dict[str, list[Tensor]]:
    """Return class probabilities by method, one tensor for each of the values that are chosen from."""
    gaussians = [posterior.Prediction(mean, covariance.double()) for mean, covariance in content["preds"]]
    joint = [
        posterior.Prediction(one.mean / heat, one.covariance / heat**2).probabilities()
        for heat in TEMPERATURES
        for one in gaussians
    ]
    plain = [one.probabilities() for one in gaussians]
    return {
        "temperature scaling": [torch.softmax(content["logits"].double() / heat, 1) for heat in SCALINGS],
        "posterior": plain,
        "diagonal": [one.probabilities("diagonal") for one in gaussians],
        "joint": joint,
        "best": plain,
    }


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.uncertainty.splits", description=__doc__.split("\n\n")[0]
    )
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of FashionMNIST")
    parser.add_argument("--out", type=Path, required=True, help="folder of the network and of its predictions")
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--sizes", nargs="+", type=int, default=[1_000, 2_000], help="images that choose")
    parser.add_argument("--repeats", type=int, default=60)
    options = parser.parse_args(arguments)
    content = predictions(options.data_dir, options.out, options.points)
    labels, methods = content["y"], candidates(content)
    losses = {
        name: torch.stack([-p.gather(1, labels[:, None])[:, 0].log() for p in several])
        for name, several in methods.items()
    }
    right = methods["posterior"][int(losses["posterior"].mean(1).argmin())]
    for measured in (right[1_000:], right):
        print(f"{len(measured):,} images: {posterior.calibration_floor(measured)}", flush=True)
    generator = torch.Generator().manual_seed(0)
    for size in options.sizes:
        orders = [torch.randperm(len(labels), generator=generator) for _ in range(options.repeats)]
        for name, several in methods.items():
            errors, nll = [], []
            for order in orders:
                choosing, measured = order[:size], order[size:]
                chosen = int(losses[name][:, measured if name == "best" else choosing].mean(1).argmin())
                errors.append(posterior.calibration(several[chosen][measured], labels[measured]).ece)
                nll.append(float(losses[name][chosen, measured].mean()))
            ece = torch.tensor(errors)
            print(
                f"chosen by {size:,} images, {name}: ECE {ece.mean():.2%} (standard deviation {ece.std():.2%}), "
                f"NLL {sum(nll) / len(nll):.4f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
