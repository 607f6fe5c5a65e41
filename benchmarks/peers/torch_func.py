"""torch.func: per-sample Jacobians by ``vmap(jacrev)`` and their contraction, or NTK-vector products.

The two methods of the PyTorch tutorial "Neural Tangent Kernels", helped where that is exact: ``x2 is x1``, so the
Jacobian is taken once; products accumulate in place; and what does not fit in memory is done block by block over
the upper triangle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cases import Case, Problem
from benchmarks.peers._contract import contract
from benchmarks.peers._peer import Peer, Setting, Unsuitable


class TorchFunc(Peer):
    """PyTorch's own function transforms."""

    name = "torch.func"

    def settings(self, case: Case) -> tuple[Setting, ...]:
        small = max(1, min(16, case.samples // 4))
        whole: list[Setting] = [
            {"method": "vmap(jacrev)", "chunk": None},
            {"method": "vmap(jacrev)", "chunk": small},
        ]
        if case.readouts == 1:
            whole.append({"method": "vmap(grad)", "chunk": None})
            whole.append({"method": "vmap(grad)", "chunk": small})
        return (
            *whole,
            {"method": "vmap(jacrev) per block pair", "block": max(1, min(32, case.samples // 2))},
            {"method": "NTK-vector products", "block": 1},
            {"method": "NTK-vector products", "block": small},
        )

    def prepare(self, problem: Problem, setting: Setting, memory: int) -> Callable[[], Any]:
        import torch
        from torch.func import functional_call, grad, jacrev, vmap

        from benchmarks.networks import load_network, scalar_readout

        model = load_network(problem)
        readout = scalar_readout(problem)
        x = torch.from_numpy(problem.x).to(problem.device)
        parameters = {name: tensor.detach() for name, tensor in model.named_parameters()}

        def network(parameters: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
            return readout(functional_call(model, parameters, (sample.unsqueeze(0),))).squeeze(0)

        method = setting["method"]
        if method == "NTK-vector products":
            return lambda: _vector_products(network, parameters, x, setting["block"])

        case = problem.case
        block = setting.get("block", case.samples)
        held = case.samples if block >= case.samples else 2 * block
        size = 4 * held * case.readouts * problem.parameter_count
        if size > 0.7 * memory:
            raise Unsuitable(f"out of memory: the Jacobian alone is {size / 2**30:.1f} GiB")

        if method == "vmap(grad)":
            single = grad(lambda parameters, sample: network(parameters, sample).squeeze(0))
        else:
            single = jacrev(network)
        transform = vmap(single, (None, 0), chunk_size=setting.get("chunk"))

        def jacobian(part: torch.Tensor) -> list[torch.Tensor]:
            rows = part.shape[0] * case.readouts
            return [layer.reshape(rows, -1) for layer in transform(parameters, part).values()]

        if block < case.samples:
            return lambda: _by_block_pairs(jacobian, x, block, case.readouts)
        return lambda: contract(rows := jacobian(x), rows)

    def canonical(self, problem: Problem, kernel: Any) -> np.ndarray:
        return kernel.cpu().numpy()


def _by_block_pairs(jacobian: Callable[[Any], list[Any]], x: Any, block: int, readouts: int) -> Any:
    """Compute the kernel from blocks of the Jacobian, two in memory at a time, and mirror the lower triangle."""
    size = x.shape[0] * readouts
    kernel = x.new_empty(size, size)
    starts = range(0, x.shape[0], block)
    for i in starts:
        left = jacobian(x[i : i + block])
        rows = slice(i * readouts, (i + block) * readouts)
        for j in starts:
            if j < i:
                continue
            tile = contract(left, left if i == j else jacobian(x[j : j + block]))
            columns = slice(j * readouts, (j + block) * readouts)
            kernel[rows, columns] = tile
            kernel[columns, rows] = tile.T
    return kernel


def _vector_products(network: Callable[[Any, Any], Any], parameters: dict[str, Any], x: Any, block: int) -> Any:
    """Compute the kernel as ``J(x2) (J(x1)^T e_o)``: one reverse and one forward pass per pair and readout."""
    import torch
    from torch.func import jvp, vjp, vmap

    def pair(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        value, pull = vjp(lambda weights: network(weights, left), parameters)

        def column(basis: torch.Tensor) -> torch.Tensor:
            return jvp(lambda weights: network(weights, right), (parameters,), pull(basis))[1]

        return vmap(column)(torch.eye(value.shape[0], dtype=value.dtype, device=value.device))

    pairs = vmap(vmap(pair, (None, 0)), (0, None))
    # (block, N, R1, R2) to (block R1, N R2)
    strips = [pairs(part, x).transpose(1, 2).flatten(2).flatten(0, 1) for part in x.split(block)]
    return torch.cat(strips)
