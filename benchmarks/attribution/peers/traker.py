"""traker in an environment of its own: ``python -m benchmarks.attribution.peers.traker PROBLEM OUT K COUNTS``.

Its own gradients, projector (CPU) and scores in float32, with the settings it has by default otherwise.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from trak import TRAKer

from benchmarks.attribution.peers.problem import Problem, network

BATCH = 1000
GRADIENTS = 100
"""Training samples whose gradients before projection are compared."""


def main(problem_file: Path, out: Path, k: int, counts: list[int]) -> None:
    """Write scores, (tests, samples), for each number of checkpoints, and the first checkpoint's gradients."""
    problem = Problem(problem_file)
    model = network(problem.states[0])
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as folder:
        traker = TRAKer(
            model=model,
            task="image_classification",
            train_set_size=len(problem.train[0]),
            save_dir=folder,
            device="cpu",
            proj_dim=k,
            use_half_precision=False,
            logging_level=logging.ERROR,
        )
        for number, state in enumerate(problem.states[: max(counts)]):
            traker.load_checkpoint(state, model_id=number)
            if number == 0:
                few = problem.train[0][:GRADIENTS], problem.train[1][:GRADIENTS]
                found = traker.gradient_computer.compute_per_sample_grad(batch=few)
                arrays["gradients"] = torch.cat([g.flatten(1) for g in found.values()], 1).detach().numpy()
            for x, y in problem.batches(problem.train, BATCH):
                traker.featurize(batch=(x, y), num_samples=len(x))
            print(f"checkpoint {number}", flush=True)
        traker.finalize_features()
        for number, state in enumerate(problem.states[: max(counts)]):
            traker.start_scoring_checkpoint("test", state, model_id=number, num_targets=len(problem.test[0]))
            for x, y in problem.batches(problem.test, BATCH):
                traker.score(batch=(x, y), num_samples=len(x))
        for count in counts:
            scores = traker.finalize_scores("test", model_ids=list(range(count)))
            arrays[f"trak/{count}"] = np.array(scores).T
    np.savez(out, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[4].split(",")])
