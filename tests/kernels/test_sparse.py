"""Sparse and nested tensors inside of networks: adjacency matrices, sparse weights, sequences of several lengths."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.store import compute

NODES, WIDTH = 4, 6
Layout = Callable[[Tensor], Tensor]
LAYOUTS: dict[str, Layout] = {"coo": Tensor.to_sparse, "csr": Tensor.to_sparse_csr, "csc": Tensor.to_sparse_csc}


class Graph(nn.Module):
    """One step of message passing along a fixed sparse graph."""

    edges: Tensor

    def __init__(self, layout: Layout, seed: int = 1) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        edges = torch.randn(NODES, NODES, generator=generator) * (torch.rand(NODES, NODES, generator=generator) > 0.3)
        self.register_buffer("edges", layout(edges.double()))
        torch.manual_seed(0)
        self.inner = nn.Linear(WIDTH, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        nodes = self.inner(x).transpose(0, 1)
        return torch.tanh((self.edges @ nodes.flatten(1)).unflatten(1, nodes.shape[1:])).sum(0)


class SparseWeight(nn.Module):
    """A matrix whose entries at a few places are parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.randn(5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        places = torch.tensor([[0, 1, 2, 3, 5], [0, 2, 1, 2, 0]])
        return torch.sparse.mm(torch.sparse_coo_tensor(places, self.values, (WIDTH, 3)).t(), torch.tanh(x.sum(1)).T).T


class Lengths(nn.Module):
    """A layer on the first positions of each sample, as many as its content says."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(WIDTH, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        parts = [sample[: 1 + int(sample[0, 0] > 0)] for sample in x]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        return torch.nested.to_padded_tensor(self.inner(nested), 0.0).sum(1)


def samples() -> Tensor:
    return torch.randn(5, NODES, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


@pytest.mark.parametrize(
    "make",
    [*(lambda f=f: Graph(f) for f in LAYOUTS.values()), SparseWeight, Lengths],
    ids=[*LAYOUTS, "weight", "nested"],
)
def test_kernel(make: Callable[[], nn.Module], tmp_path: Path) -> None:
    model, x = make(), samples()
    expected = tangentlab.reference.ntk(model, x)
    torch.testing.assert_close(tangentlab.ntk(model, x), expected)
    torch.testing.assert_close(sum(tangentlab.ntk(model, x, per_layer=True).values()), expected)
    stored = compute(model, x, tmp_path / "kernel.zarr", readout="full")
    torch.testing.assert_close(torch.as_tensor(stored[:]).reshape(expected.shape), expected)


def test_copies() -> None:
    model, x = Graph(Tensor.to_sparse), samples()
    expected = tangentlab.reference.ntk(model, x)
    found = tangentlab.ntk(model, x, dtype=torch.float32)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5 * float(expected.max()))
    torch.testing.assert_close(tangentlab.linearize(model)(x), model(x))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_store_is_refused_for_another_graph(layout: Layout, tmp_path: Path) -> None:
    x = samples()
    compute(Graph(layout), x, tmp_path / "kernel.zarr")
    compute(Graph(layout), x, tmp_path / "kernel.zarr")
    with pytest.raises(TangentError):
        compute(Graph(layout, seed=3), x, tmp_path / "kernel.zarr")


def _scaled(module: Any) -> None:
    module.edges.mul_(1.01)


def _replaced(module: Any) -> None:
    module.edges = module.edges * 1.01


@pytest.mark.parametrize("change", [_scaled, _replaced])
@pytest.mark.parametrize("name", ["coo", "csr"])
def test_a_sparse_buffer_that_the_forward_pass_changes_is_refused(name: str, change: Callable[[Any], None]) -> None:
    model = Graph(LAYOUTS[name])
    before = model.edges.to_dense()
    model.register_forward_hook(lambda module, args, output: change(module))
    with pytest.raises(TangentError, match="buffer edges"):
        tangentlab.ntk(model, samples())
    if change is _replaced:
        assert torch.equal(model.edges.to_dense(), before)
