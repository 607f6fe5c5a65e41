"""dattri in an environment of its own: ``python -m benchmarks.attribution.peers.dattri PROBLEM OUT K COUNTS``.

Its TRAK with its CPU projector, and its TracIn without projection, both as inner products and as cosines. (TracIn
projects to 512 numbers unless the attribute that says so is removed after construction: passing None is ignored.)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dattri.algorithm.tracin import TracInAttributor
from dattri.algorithm.trak import TRAKAttributor
from dattri.task import AttributionTask
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.attribution.peers.problem import Problem, network

BATCH = 1000
FEW = 200
"""Training and test samples whose TracIn scores are compared."""


def main(problem_file: Path, out: Path, k: int, counts: list[int]) -> None:
    """Write TRAK's scores, (tests, samples), for each number of checkpoints, and TracIn's of the first checkpoint."""
    problem = Problem(problem_file)
    model = network(problem.states[0])
    train, test = (DataLoader(TensorDataset(*data), batch_size=BATCH) for data in (problem.train, problem.test))

    def logits(params: Any, x: Tensor) -> Tensor:
        return torch.func.functional_call(model, params, x.unsqueeze(0))

    def loss(params: Any, pair: tuple[Tensor, Tensor]) -> Tensor:
        return torch.nn.functional.cross_entropy(logits(params, pair[0]), pair[1].unsqueeze(0))

    def margin(params: Any, pair: tuple[Tensor, Tensor]) -> Tensor:
        log_p = -loss(params, pair)
        return log_p - torch.log(1 - torch.exp(log_p))

    def probability(params: Any, pair: tuple[Tensor, Tensor]) -> Tensor:
        return torch.exp(-loss(params, pair))

    parts, weights = [], []
    for number, state in enumerate(problem.states[: max(counts)]):
        # One task per checkpoint, each with a projection of its own as a task of several has it, so that their averages
        # over the first 1, 5 and 10 need no checkpoint twice.
        projection = {"proj_dim": k, "proj_seed": number, "device": "cpu"}
        trak = TRAKAttributor(AttributionTask(margin, model, state), probability, projector_kwargs=projection)
        with torch.no_grad():
            trak.cache(train)
            weights.append(trak.Q)
            trak.Q = torch.ones_like(trak.Q)
            parts.append(trak.attribute(test).T)
        print(f"checkpoint {number}", flush=True)
    arrays = {
        f"trak/{count}": (torch.stack(parts[:count]).mean(0) * torch.stack(weights[:count]).mean(0)).numpy()
        for count in counts
    }
    few = [
        DataLoader(TensorDataset(*(p[:FEW] for p in data)), batch_size=FEW) for data in (problem.train, problem.test)
    ]
    for name, cosine in (("gradient", False), ("cosine", True)):
        task = AttributionTask(loss, model, problem.states[0])
        tracin = TracInAttributor(task, torch.ones(1), normalized_grad=cosine)
        tracin.projector_kwargs = None
        with torch.no_grad():
            arrays[name] = tracin.attribute(*few).T.numpy()
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[4].split(",")])
