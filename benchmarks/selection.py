"""Choosing samples: the same rows as bmdal-reg, the time for a large pool, and what it is worth in active learning.

    python -m benchmarks.selection peer
    python -m benchmarks.selection time --data-dir DIR
    python -m benchmarks.selection active --data-dir DIR --out selection.jsonl

``peer`` gives the same features to bmdal-reg (Holzmueller et al. 2023) and compares the chosen rows. ``time`` chooses
1,000 of the 60,000 MNIST digits by maximum determinant in sketched features. ``active`` labels 20 samples of a pool of
4,000 in each of 10 rounds, trains a network from scratch on the labeled ones, and measures its test accuracy; finished
runs are in the output file and are not repeated.

The rule of ``active``, fixed before the results: per seed the mean test accuracy after the 10 rounds is compared with
that of random choice from the same 20 first samples; a method is better than random on a data set if the 95 % interval
of the mean difference over 10 seeds (paired t, corrected for the number of methods by Bonferroni) is above 0.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn

from benchmarks.measure import ROOT
from tangentlab import data, linalg, select, sketch

PACKAGES = ("bmdal-reg==3.0.2", "dill==0.4.0", "psutil==7.2.1")
METHODS: dict[str, Callable[..., select.Selection]] = {
    "largest variance": select.largest_variance,
    "maximum determinant": select.max_determinant,
    "LCMD": select.lcmd,
    "k-means++": select.kmeans_plus_plus,
    "BAIT": select.bait,
}
ROUNDS, LABELS, POOL, TEST, FEATURES = 10, 20, 4000, 2000, 256
_PEER = """
import sys
import numpy as np
np.Inf = np.inf  # the package was written for NumPy 1
import torch
from bmdal_reg.bmdal import selection as s
from bmdal_reg.bmdal.feature_data import TensorFeatureData
from bmdal_reg.bmdal.feature_maps import IdentityFeatureMap
from bmdal_reg.bmdal.features import Features
given = torch.load(sys.argv[1])
def features(x):
    return Features(IdentityFeatureMap(n_features=x.shape[1]), TensorFeatureData(x))
pool, train, count, sigma = features(given["pool"]), features(given["train"]), given["count"], given["ridge"] ** 0.5
both = {"pool_features": pool, "train_features": train, "verbosity": 0}
chosen = {
    "maximum determinant": s.MaxDetSelectionMethod(**both, sel_with_train=True, noise_sigma=sigma).select(count),
    "LCMD": s.LargestClusterMaxDistSelectionMethod(**both, sel_with_train=True).select(count),
    "BAIT": s.BaitFeatureSpaceSelectionMethod(
        **both, sel_with_train=True, noise_sigma=sigma, overselection_factor=2.0).select(count),
}
torch.save(chosen, sys.argv[2])
"""


def peer() -> int:
    """Compare the chosen rows with those of bmdal-reg; return 1 if any differ."""
    folder = ROOT / ".bench-bmdal"
    if not (folder / "bmdal_reg").exists():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PACKAGES]
        subprocess.run(install, check=True)
    wrong = 0
    for name, features in _feature_sets().items():
        train, pool, ridge = features[:20], features[20:], 1e-2 * float(features.square().sum(1).mean())
        with tempfile.TemporaryDirectory() as scratch:
            given, found = Path(scratch) / "given.pt", Path(scratch) / "found.pt"
            torch.save({"pool": pool, "train": train, "count": 50, "ridge": ridge}, given)
            environment = os.environ | {"PYTHONPATH": str(folder)}
            subprocess.run([sys.executable, "-c", _PEER, str(given), str(found)], check=True, env=environment)
            theirs = torch.load(found)
        every = linalg.LowRank(torch.cat([pool, train]))
        labeled = range(len(pool), len(pool) + 20)
        for method, rows in theirs.items():
            noise = {} if method == "LCMD" else {"ridge": ridge}
            ours = METHODS[method](every, 50, labeled=list(labeled), **noise).indices
            same = set(ours.tolist()) == set(rows.tolist())
            wrong += not same
            print(f"{name}, {method}: {'the same 50 rows' if same else 'OTHER ROWS'}", flush=True)
    return int(wrong > 0)


def _feature_sets() -> dict[str, Tensor]:
    draws = torch.Generator().manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
    digits = data.load("digits").train
    return {
        "1,500 normal features": torch.randn(1500, 40, generator=draws, dtype=torch.float64),
        "1,437 digits, sketched": sketch(network, digits, 64, progress=False).features.double(),
    }


def large(folder: Path | None) -> int:
    """Time the choice of 1,000 of 60,000 samples."""
    digits = data.load("mnist", folder).train
    network = _network(0)
    begin = time.perf_counter()
    pool = sketch(network, digits, 512, progress=False)
    between = time.perf_counter()
    select.max_determinant(pool, 1000, ridge=1e-3 * float(pool.diagonal().mean()), progress=False)
    end = time.perf_counter()
    print(f"sketch of 60,000 to 512 features {between - begin:.1f} s, choice of 1,000 {end - between:.1f} s")
    return 0


def _network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))


def _train(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    network = _network(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimizer.step()
    return network.eval()


def _run(images: data.ImageData, method: str, seed: int) -> list[float]:
    """Return the test accuracy after each round."""
    draws = np.random.default_rng([seed, 7])
    rows = draws.permutation(len(images.train))[:POOL]
    x, y = images.train.batch(rows)
    x_test, y_test = images.test.batch(draws.permutation(len(images.test))[:TEST])
    labeled = list(range(LABELS))  # the pool is in random order
    accuracies = []
    for number in range(ROUNDS + 1):
        network = _train(x[labeled], y[labeled], seed)
        with torch.no_grad():
            accuracies.append(float((network(x_test).argmax(1) == y_test).double().mean()))
            predicted = network(x).argmax(1)
        if number == ROUNDS:
            return accuracies[1:]
        if method == "random":
            free = np.setdiff1d(np.arange(POOL), labeled)
            labeled += draws.choice(free, LABELS, replace=False).tolist()
            continue
        # The gradient of the loss, if the prediction were right: large where the network is unsure.
        pool = sketch(network, x, FEATURES, readout="loss", targets=predicted, seed=number, progress=False)
        arguments: dict[str, Any] = {"labeled": labeled}
        if method in ("largest variance", "maximum determinant"):
            arguments["ridge"] = 1e-3 * float(pool.diagonal().mean())
        if method == "k-means++":
            arguments["seed"] = seed * 100 + number
        labeled += METHODS[method](pool, LABELS, **arguments).indices.tolist()
    raise AssertionError


def active(folder: Path | None, out: Path, seeds: int, names: list[str]) -> int:
    """Run what is missing in the output file, and print the table."""
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(r["data"], r["method"], r["seed"]) for r in done}
    methods = ["random", *METHODS]
    for name in names:
        images = data.load(name, folder)
        for seed in range(seeds):
            for method in methods:
                if (name, method, seed) in known:
                    continue
                result = {"data": name, "method": method, "seed": seed, "accuracy": _run(images, method, seed)}
                done.append(result)
                with out.open("a") as file:
                    file.write(json.dumps(result) + "\n")
    print(
        "| data | method | mean accuracy over rounds | difference to random | after 220 labels |\n|---|---|---|---|---|"
    )
    for name in names:
        curves = {(r["method"], r["seed"]): r["accuracy"] for r in done if r["data"] == name and r["seed"] < seeds}
        for method in methods:
            own = np.array([np.mean(curves[method, s]) for s in range(seeds)])
            last = np.array([curves[method, s][-1] for s in range(seeds)])
            gap = own - [np.mean(curves["random", s]) for s in range(seeds)]
            level = 1 - 0.05 / len(METHODS)
            low, high = stats.t.interval(level, seeds - 1, gap.mean(), stats.sem(gap)) if gap.any() else (0, 0)
            shown = "" if method == "random" else f"{100 * gap.mean():+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"
            print(f"| {name} | {method} | {100 * own.mean():.1f} % | {shown} | {100 * last.mean():.1f} % |")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.selection", description=__doc__.split("\n\n")[0])
    parser.add_argument("part", choices=["peer", "time", "active"])
    parser.add_argument("--data-dir", type=Path, help="folder of MNIST and Fashion-MNIST (default: the usual folders)")
    parser.add_argument("--out", type=Path, default=Path("selection.jsonl"), help="file of finished runs")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--data", nargs="+", default=["mnist", "fashion_mnist"])
    options = parser.parse_args(arguments)
    if options.part == "peer":
        return peer()
    if options.part == "time":
        return large(options.data_dir)
    return active(options.data_dir, options.out, options.seeds, options.data)


if __name__ == "__main__":
    raise SystemExit(main())
