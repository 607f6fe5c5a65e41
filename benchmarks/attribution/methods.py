"""The scores of our methods for the first 1, 5 and 10 checkpoints, each checkpoint computed once and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.attribution.setup import Setup
from tangentlab import attribution, linalg, ntk
from tangentlab.attribution import Exact, Gradient, Method, Representer, Trak

K = 256
"""Features per sample of TRAK in every tool."""
METHODS: dict[str, Callable[[Setup], Method]] = {
    "trak": lambda setup: Trak(k=K),
    "trak, ridge 0": lambda setup: Trak(k=K, ridge=0.0),
    "trak, k 2048": lambda setup: Trak(k=2048),
    "gradient": lambda setup: Gradient(),
    "gradient, cosine": lambda setup: Gradient(cosine=True),
    "exact": lambda setup: Exact(ridge=ridge(setup)),
    "representer": lambda setup: Representer(ridge=ridge(setup)),
}


def ridge(setup: Setup) -> float:
    """Return the ridge with the smallest leave-one-out error at the first checkpoint, which all checkpoints use.

    ``Exact()`` by itself chooses one for each checkpoint, with an eigendecomposition each.
    """
    path = setup.folder / "ridge.json"
    if not path.exists():
        x, y = setup.retraining.train
        kernel = ntk(setup.checkpoints(1)[0], x, readout="pntk", dtype=torch.float64)
        best = linalg.ridge_path(kernel, torch.nn.functional.one_hot(y, 10).double()).best
        path.write_text(json.dumps(best))
    return float(json.loads(path.read_text()))


def scores(setup: Setup, name: str, counts: list[int]) -> dict[int, Tensor]:
    """Return the scores, (tests, samples), for each number of checkpoints."""
    folder = setup.folder / "scores" / name.replace(", ", "-").replace(" ", "-")
    (x, y), (x_test, y_test) = setup.retraining.train, setup.retraining.test
    models = setup.checkpoints(max(counts))
    attribution.attribute(
        models, x, x_test, METHODS[name](setup), targets=y, test_targets=y_test, out=folder, progress=False
    )
    return {count: combined(folder, count) for count in counts}


def combined(folder: Path, count: int) -> Tensor:
    """Average the first checkpoints of a finished attribution as :func:`tangentlab.attribution.attribute` does."""
    parts = [np.load(folder / f"checkpoint-{number:03d}.npz") for number in range(count)]
    mean = torch.from_numpy(np.mean([part["scores"] for part in parts], axis=0))
    if "weights" in parts[0]:
        mean *= torch.from_numpy(np.mean([part["weights"] for part in parts], axis=0))
    return mean
