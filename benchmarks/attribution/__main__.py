"""Data attribution on MNIST, with traker and dattri beside it.

    python -m benchmarks.attribution --data-dir DIR --out FOLDER                # everything; rerun to resume
    python -m benchmarks.attribution --data-dir DIR --out FOLDER --only lds

Stages: ``train`` (50 networks on half of the digits, ten on all), ``peers`` (both in environments of their own),
``lds`` (the table), ``agreement`` (our gradients and scores against theirs), ``removal``, ``cost``.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from pathlib import Path

import torch

from benchmarks.attribution import agreement, cost, removal, table
from benchmarks.attribution.methods import METHODS, K
from benchmarks.attribution.peers import problem
from benchmarks.attribution.setup import Setup
from benchmarks.environments import NotAvailable, environment
from benchmarks.measure import ROOT

STAGES = ("train", "peers", "lds", "agreement", "removal", "cost")


def main() -> None:
    """Run the stages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", type=Path, help="folder that holds MNIST/raw")
    parser.add_argument("--out", type=Path, default=Path("attribution-benchmark"), help="folder for results")
    parser.add_argument("--only", choices=STAGES, action="append", help="stages to run; all by default")
    parser.add_argument("--method", choices=METHODS, action="append", help="methods of the table; all by default")
    parser.add_argument("--seeds", type=int, default=1, help="networks per subset whose margins are averaged")
    parser.add_argument("--removal-seeds", type=int, default=3, help="networks per removal")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    setup, stages = Setup(options.out, options.data_dir), options.only or STAGES
    setup.folder.mkdir(parents=True, exist_ok=True)
    if "train" in stages:
        print(table.retrained(setup, options.seeds), len(setup.checkpoints(10)), "checkpoints", flush=True)
    if "peers" in stages:
        peers(setup, options.threads)
    if "lds" in stages:
        found = table.measure(
            setup, options.method or list(METHODS), options.seeds, lambda text: print(text, flush=True)
        )
        rows = table.summary(found).round(6)
        rows.to_csv(setup.folder / "lds.csv", index=False)
        table.per_test(found).to_csv(setup.folder / "lds-per-test.csv", index=False)
        print(table.markdown(rows), table.markdown(rows, "gap"), sep="\n\n")
    if "agreement" in stages:
        print(agreement.agreement(setup).to_string(index=False))
    if "removal" in stages:
        rows = removal.removal(setup, options.removal_seeds, print)
        rows.to_csv(setup.folder / "removal.csv", index=False)
        print(removal.summary(rows).to_string(index=False))
    if "cost" in stages:
        print(cost.cost(setup, print).to_string(index=False))


def peers(setup: Setup, threads: int) -> None:
    """Run each peer in its environment, unless its scores are there."""
    file = setup.folder / "problem.npz"
    problem.write(file, setup.retraining.train, setup.retraining.test, setup.checkpoints(10))
    for tool in table.TOOLS:
        out = setup.folder / f"{tool}-{K}.npz"
        if out.exists():
            continue
        try:
            python = environment(tool, f"requirements-{tool}.txt", print)
        except NotAvailable as reason:
            print(f"{tool}: {reason}")
            continue
        counts = ",".join(map(str, table.COUNTS))
        command = [str(python), "-m", f"benchmarks.attribution.peers.{tool}", str(file), str(out), str(K), counts]
        surroundings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": str(threads)}
        subprocess.run(command, cwd=ROOT, env=surroundings, check=True)


if __name__ == "__main__":
    main()
