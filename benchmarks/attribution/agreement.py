"""Whether our gradients and scores are those of the peers, for the same network and digits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.attribution.methods import K
from benchmarks.attribution.setup import Setup
from tangentlab import attribution
from tangentlab.kernels import compute_factors


def agreement(setup: Setup) -> pd.DataFrame:
    """Return the largest difference from each peer, relative to the largest number."""
    rows = []
    model = setup.checkpoints(1)[0]
    (x, y), (x_test, y_test) = setup.retraining.train, setup.retraining.test
    path = setup.folder / f"traker-{K}.npz"
    if path.exists():
        theirs = torch.from_numpy(np.load(path)["gradients"])
        ours = gradients(model, x[: len(theirs)], y[: len(theirs)])
        rows.append(("gradients of the margin before projection", "traker", _difference(ours, theirs)))
    path = setup.folder / f"dattri-{K}.npz"
    if path.exists():
        content = np.load(path)
        for name, cosine in (("gradient", False), ("cosine", True)):
            theirs = torch.from_numpy(content[name])
            tests, samples = theirs.shape
            method = attribution.Gradient(cosine=cosine)
            named = {"targets": y[:samples], "test_targets": y_test[:tests]}
            ours = attribution.attribute(model, x[:samples], x_test[:tests], method, **named).scores
            rows.append((f"scores of the method {name}", "dattri", _difference(ours, theirs)))
    return pd.DataFrame(rows, columns=["what", "peer", "difference"])


def gradients(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradients of the margin, (N, P), written out of the factors that are sketched."""
    factors = compute_factors(model, x, "margin", targets=y)
    each = torch.eye(len(x))[:, None]
    named = {name: p.shape for name, p in model.named_parameters()}
    parts = [factor.pull(each) for factor in factors.parts.values()]
    shapes = list(named.values())
    flat = []
    for part, (weight, bias) in zip(parts, zip(shapes[::2], shapes[1::2], strict=True), strict=True):
        size = weight.numel()
        assert part.shape[1] == size + bias.numel()
        flat += [part[:, :size], part[:, size:]]
    return torch.cat(flat, 1)


def _difference(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.double() - theirs.double()).abs().max() / theirs.double().abs().max())
