"""tangentlab, with its defaults: what a user gets who sets nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Problem
from benchmarks.peers._peer import Peer, Setting


class TangentLab(Peer):
    """``tangentlab.ntk`` with every check on and every size chosen by itself."""

    name = "tangentlab"

    def settings(self, case: Case) -> tuple[Setting, ...]:
        return ({},)

    def prepare(self, problem: Problem, setting: Setting, memory: int) -> Callable[[], Any]:
        import torch

        import tangentlab
        from benchmarks.networks import load_network

        model = load_network(problem)
        x = torch.from_numpy(problem.x).to(problem.device)
        return lambda: tangentlab.ntk(model, x, readout=problem.case.readout, **setting)

    def canonical(self, problem: Problem, kernel: Any) -> np.ndarray:
        size = problem.case.samples * problem.case.readouts
        return kernel.reshape(size, size).cpu().numpy()
