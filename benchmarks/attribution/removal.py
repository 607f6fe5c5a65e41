"""Removing training digits and training again: does a test digit's margin fall as the scores say?"""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import torch
from torch import Tensor

from benchmarks.attribution.methods import scores
from benchmarks.attribution.setup import Setup
from tangentlab.attribution import retrain

DIGITS, REMOVED = 30, 50


def removal(setup: Setup, seeds: int, say: Callable[[str], None], name: str = "trak") -> pd.DataFrame:
    """Return one row per test digit and choice: the fall of its margin, averaged over seeds.

    Three choices of 50 training digits: the most helpful by the scores of ten checkpoints, random ones, and the nearest
    by pixel. The networks without them have the seeds of the networks on all digits that they are compared with. The
    test digits are 30 random ones, drawn before anything is computed.
    """
    (x, _), (x_test, y_test) = setup.retraining.train, setup.retraining.test
    random = torch.Generator().manual_seed(0)
    chosen = torch.randperm(len(x_test), generator=random)[:DIGITS]
    helpful = scores(setup, name, [10])[10][chosen].topk(REMOVED).indices
    nearest = torch.cdist(x_test[chosen].flatten(1), x.flatten(1)).topk(REMOVED, largest=False).indices
    anything = torch.stack([torch.randperm(len(x), generator=random)[:REMOVED] for _ in chosen])
    choices = {"most helpful": helpful, "random": anything, "nearest by pixel": nearest}
    everything = torch.ones(len(x), dtype=torch.bool)
    subsets = [everything, *(_without(everything, rows) for part in choices.values() for rows in part)]
    found = retrain(setup.retraining, len(x), subsets=subsets, seeds=seeds, folder=setup.folder / f"removed-{name}")
    whole, others = found.values[0], found.values[1:].view(len(choices), len(chosen), -1)
    table = [
        {"digit": int(test), "label": int(y_test[test]), "removed": kind, "fall": float(whole[test] - value[test])}
        for kind, values in zip(choices, others, strict=True)
        for test, value in zip(chosen, values, strict=True)
    ]
    say(f"{DIGITS} digits, {seeds} seeds")
    return pd.DataFrame(table)


def summary(table: pd.DataFrame, resamples: int = 10_000) -> pd.DataFrame:
    """Return the mean fall of each choice, and of its difference from the most helpful, with bootstrap intervals."""
    falls = table.pivot(index="digit", columns="removed", values="fall")
    random = torch.Generator().manual_seed(0)
    draws = torch.randint(len(falls), (resamples, len(falls)), generator=random)
    first = torch.tensor(falls["most helpful"].to_numpy())
    rows = []
    for kind in falls.columns:
        own = torch.tensor(falls[kind].to_numpy())
        gap = first - own
        row = {"removed": kind, "fall": float(own.mean()), **_interval("fall", own[draws].mean(1))}
        if kind != "most helpful":
            row |= {"difference": float(gap.mean()), **_interval("difference", gap[draws].mean(1))}
        rows.append(row)
    return pd.DataFrame(rows)


def _interval(name: str, draws: Tensor) -> dict[str, float]:
    low, high = torch.quantile(draws, torch.tensor([0.025, 0.975], dtype=draws.dtype)).tolist()
    return {f"{name}_low": low, f"{name}_high": high}


def _without(everything: Tensor, rows: Tensor) -> Tensor:
    mask = everything.clone()
    mask[rows] = False
    return mask
