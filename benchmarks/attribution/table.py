"""The linear datamodeling score of every method and tool against the retrained networks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.attribution.methods import METHODS, K, scores
from benchmarks.attribution.setup import Setup
from tangentlab.attribution import LDS, Retrained, lds, retrain

COUNTS = [1, 5, 10]
TOOLS = ("traker", "dattri")
PUBLISHED = {
    "traker, trak": "`traker` 0.3.2, k 256",
    "dattri, trak": "`dattri` 0.3.0, TRAK, k 256",
    "trak": "`Trak(k=256)`",
    "trak, ridge 0": "`Trak(k=256, ridge=0)`",
    "trak, k 2048": "`Trak(k=2048)`",
    "gradient": "`Gradient()`",
    "gradient, cosine": "`Gradient(cosine=True)`",
    "exact": "`Exact(ridge=ρ)`",
    "representer": "`Representer(ridge=ρ)`",
}
"""Methods and tools as the documentation names them."""


def retrained(setup: Setup, seeds: int = 1) -> Retrained:
    """Return the networks trained on half of the digits."""
    count = len(setup.retraining.train[0])
    return retrain(setup.retraining, count, folder=setup.folder / "retrained", seeds=seeds)


def measure(setup: Setup, names: list[str], seeds: int, say: Callable[[str], None]) -> dict[tuple[str, int], LDS]:
    """Return the score of each method and tool at each number of checkpoints."""
    networks = retrained(setup, seeds)
    found: dict[tuple[str, int], LDS] = {}
    for tool in TOOLS:
        path = setup.folder / f"{tool}-{K}.npz"
        if path.exists():
            content = np.load(path)
            for count in (count for count in COUNTS if f"trak/{count}" in content):
                found[f"{tool}, trak", count] = lds(torch.from_numpy(content[f"trak/{count}"]), networks)
                say(f"{tool} {count}: {found[f'{tool}, trak', count]}")
    for name in names:
        for count, values in scores(setup, name, COUNTS).items():
            found[name, count] = lds(values, networks)
            say(f"{name} {count}: {found[name, count]}")
    return found


def per_test(found: dict[tuple[str, int], LDS]) -> pd.DataFrame:
    """Return the raw scores: a row per test digit, a column per method and number of checkpoints."""
    columns = {f"{name}; {count}": score.per_sample.numpy().round(4) for (name, count), score in found.items()}
    return pd.DataFrame(columns).rename_axis("test").reset_index()


def summary(found: dict[tuple[str, int], LDS]) -> pd.DataFrame:
    """Return one row per method and number of checkpoints, with intervals, also of the gap to the better peer.

    The rule, fixed before any score was computed: ours is behind the better peer if the 95 % bootstrap interval of the
    difference (same resampled networks and digits for both) lies below zero.
    """
    return pd.DataFrame([_row(found, name, count) for name, count in found])


def _row(found: dict[tuple[str, int], LDS], name: str, count: int) -> dict[str, object]:
    score = found[name, count]
    row: dict[str, object] = {
        "method": name,
        "checkpoints": count,
        "lds": score.mean,
        "low": score.interval[0],
        "high": score.interval[1],
    }
    peers = [found[f"{tool}, trak", count] for tool in TOOLS if (f"{tool}, trak", count) in found]
    if peers and name in METHODS:
        best = max(peers, key=lambda peer: peer.mean)
        gap: Tensor = score.draws - best.draws
        low, high = torch.quantile(gap, torch.tensor([0.025, 0.975], dtype=gap.dtype)).tolist()
        row |= {"gap": score.mean - best.mean, "gap_low": low, "gap_high": high}
    return row


def markdown(table: pd.DataFrame, values: str = "lds") -> str:
    """Return a table as it is published: methods by numbers of checkpoints.

    Args:
        table: What :func:`summary` returns.
        values: ``"lds"``, or ``"gap"`` for the gaps to the better peer.
    """
    low, high = ("low", "high") if values == "lds" else (f"{values}_low", f"{values}_high")
    sign = "" if values == "lds" else "+"
    lines = ["| method | " + " | ".join(f"{count} checkpoint{'s' * (count > 1)}" for count in COUNTS) + " |"]
    lines.append("|---" * (1 + len(COUNTS)) + "|")
    for name, rows in table.dropna(subset=values).groupby("method", sort=False):
        cells = [f"{row[values]:{sign}.3f} [{row[low]:{sign}.3f}, {row[high]:{sign}.3f}]" for _, row in rows.iterrows()]
        lines.append(f"| {PUBLISHED.get(str(name), name)} | " + " | ".join(cells) + " |")
    return "\n".join(lines).replace("-0.", "−0.")
