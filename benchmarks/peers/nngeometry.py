"""nngeometry 0.4: the Gram matrix from its hooks, or its dense Jacobian contracted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Problem
from benchmarks.peers._contract import contract
from benchmarks.peers._peer import Peer, Setting, Unsuitable


class NNGeometry(Peer):
    """``GramMatrix`` (pairs of batches, layer by layer) and ``Jacobian`` (dense, then one GEMM)."""

    name = "nngeometry"
    requirements = "requirements-nngeometry.txt"

    def settings(self, case: Case) -> tuple[Setting, ...]:
        convolutional = case.network in ("lenet", "resnet18")
        convolutions = ("unfold", "conv") if convolutional else (None,)
        sizes = sorted({case.samples, max(1, min(128, case.samples // 4))}, reverse=True)
        return tuple(
            {"object": kind, "convolutions": convolution, "batch": batch}
            for kind in ("GramMatrix", "Jacobian")
            for convolution in convolutions
            for batch in sizes
        )

    def prepare(self, problem: Problem, setting: Setting, memory: int) -> Callable[[], Any]:
        import torch
        from nngeometry import GramMatrix, Jacobian
        from nngeometry.backend.torch_hooks import grads_conv
        from torch.utils.data import DataLoader, Dataset

        from benchmarks.networks import load_network, scalar_readout

        case = problem.case
        model = load_network(problem)
        readout = scalar_readout(problem)
        if setting["object"] == "Jacobian":
            size = 4 * case.samples * case.readouts * problem.parameter_count
            if size > 0.7 * memory:
                raise Unsuitable(f"out of memory: the Jacobian alone is {size / 2**30:.1f} GiB")
        grads_conv._conv_grad_impl.use_unfold(setting["convolutions"] != "conv")

        def function(*batch: torch.Tensor) -> torch.Tensor:
            return readout(model(batch[0]))

        x = torch.from_numpy(problem.x).to(problem.device)

        class Inputs(Dataset):
            """Batches cut by one index, not stacked sample by sample: the loader is not part of the measurement."""

            def __len__(self) -> int:
                return len(x)

            def __getitems__(self, indices: list[int]) -> tuple[torch.Tensor]:
                return (x[indices],)

        def batches() -> DataLoader:
            return DataLoader(Inputs(), batch_size=setting["batch"], collate_fn=lambda batch: batch)

        def gram() -> torch.Tensor:
            return GramMatrix(model, batches(), function=function).to_torch()

        def contracted_jacobian() -> torch.Tensor:
            jacobian = [Jacobian(model, batches(), function=function).to_torch().flatten(0, 1)]
            shape = (case.readouts, case.samples)
            return contract(jacobian, jacobian).view(*shape, *shape)

        return gram if setting["object"] == "GramMatrix" else contracted_jacobian

    def canonical(self, problem: Problem, kernel: Any) -> np.ndarray:
        size = problem.case.samples * problem.case.readouts
        return kernel.permute(1, 0, 3, 2).reshape(size, size).cpu().numpy()  # (R, N, R, N) there
