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


def retrained(setup: Setup, seeds: int = 1) -> Retrained:
    """Return the networks trained on half of the digits."""
    count = len(setup.retraining.train[0])
    return retrain(setup.retraining, count, folder=setup.folder / "retrained", seeds=seeds)


def measure(setup: Setup, names: list[str], seeds: int, say: Callable[[str], None]) -> pd.DataFrame:
    """Return one row per method and number of checkpoints, with intervals, also of the gap to the better peer.

    The rule, fixed before any score was computed: ours is behind the better peer if the 95 % bootstrap interval of the
    difference (same resampled networks and digits for both) lies below zero.
    """
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


def markdown(table: pd.DataFrame) -> str:
    """Return the table as it is published: methods by numbers of checkpoints."""
    lines = ["| method | " + " | ".join(f"{count} checkpoint{'s' * (count > 1)}" for count in COUNTS) + " |"]
    lines.append("|---" * (1 + len(COUNTS)) + "|")
    for name, rows in table.groupby("method", sort=False):
        cells = [f"{row.lds:.3f} [{row.low:.3f}, {row.high:.3f}]" for row in rows.itertuples()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)
