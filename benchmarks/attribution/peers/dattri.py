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

BATCH = 500


def main(problem_file: Path, out: Path, k: int, counts: list[int]) -> None:
    """Write scores, (tests, samples), of each method for each number of checkpoints."""
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

    arrays: dict[str, np.ndarray] = {}
    for count in counts:
        states = problem.states[:count]
        trak = TRAKAttributor(
            AttributionTask(margin, model, states), probability, projector_kwargs={"proj_dim": k, "device": "cpu"}
        )
        with torch.no_grad():
            trak.cache(train)
            arrays[f"trak/{count}"] = trak.attribute(test).T.numpy()
        for name, cosine in (("gradient", False), ("cosine", True)):
            weights = torch.full((count,), 1 / count)
            tracin = TracInAttributor(AttributionTask(loss, model, states), weights, normalized_grad=cosine)
            tracin.projector_kwargs = None
            with torch.no_grad():
                arrays[f"{name}/{count}"] = tracin.attribute(train, test).T.numpy()
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[4].split(",")])
