"""Networks in which a layer sees the rows of a batch in another order: by their places, not by their content.

A sample may keep its place (the last one of an even number of samples, here), and samples may be equal, so that few of
them that are compared show nothing.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab

Layer = Callable[[Tensor], Tensor]


def order(x: Tensor) -> tuple[Tensor, Tensor]:
    """Even places first, and the way back."""
    there = torch.cat([torch.arange(0, len(x), 2), torch.arange(1, len(x), 2)])
    return there, there.argsort()


def indexed(f: Layer, x: Tensor) -> Tensor:
    there, back = order(x)
    return f(x[there])[back]


def sliced(f: Layer, x: Tensor) -> Tensor:
    y, half = f(torch.cat([x[0::2], x[1::2]])), (len(x) + 1) // 2
    z = torch.empty_like(y)
    z[0::2], z[1::2] = y[:half], y[half:]
    return z


def looked_up(f: Layer, x: Tensor) -> Tensor:
    there, back = order(x)
    return F.embedding(back, f(F.embedding(there, x)))


def multiplied(f: Layer, x: Tensor) -> Tensor:
    matrix = torch.eye(len(x), dtype=x.dtype)[order(x)[0]]
    return matrix.T @ f(matrix @ x)


def summed(f: Layer, x: Tensor) -> Tensor:
    matrix = torch.eye(len(x), dtype=x.dtype)[order(x)[0]]
    return torch.einsum("ab,ac->bc", matrix, f(torch.einsum("ab,bc->ac", matrix, x)))


def gathered(f: Layer, x: Tensor) -> Tensor:
    there, back = (o.unsqueeze(1) for o in order(x))
    y = f(x.gather(0, there.expand_as(x)))
    return y.gather(0, back.expand_as(y))


def flipped(f: Layer, x: Tensor) -> Tensor:
    return f(x.flip(0)).flip(0)


def flipped_inside(f: Layer, x: Tensor) -> Tensor:
    y = f(torch.cat([x[:1], x[1:-1].flip(0), x[1:][-1:]]))
    return torch.cat([y[:1], y[1:-1].flip(0), y[1:][-1:]])


def rolled(f: Layer, x: Tensor) -> Tensor:
    return f(x.roll(1, 0)).roll(-1, 0)


def halves(f: Layer, x: Tensor) -> Tensor:
    one, two = f(torch.cat([x, x])).chunk(2)
    return (one + two) / 2


WAYS = [indexed, sliced, looked_up, multiplied, summed, gathered, flipped, flipped_inside, rolled, halves]


class Permuted(nn.Module):
    def __init__(self, way: Callable[[Layer, Tensor], Tensor]) -> None:
        super().__init__()
        self.way, self.a, self.b = way, nn.Linear(4, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.tanh(self.way(self.a, x)))


@pytest.mark.filterwarnings("ignore:The rules do not describe")
@pytest.mark.parametrize("equal", ["none", "ends", "all but one"])
@pytest.mark.parametrize("count", [2, 4, 7, 20, 40])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_kernel(way: Callable[[Layer, Tensor], Tensor], count: int, equal: str) -> None:
    torch.manual_seed(0)
    model, x = Permuted(way).double(), torch.randn(count, 4, dtype=torch.float64)
    if equal == "ends":
        x[-1] = x[0]
    elif equal == "all but one":
        x = x[:1].repeat(count, 1)
        x[count // 2] += 1
    expected = tangentlab.reference.ntk(model, x)
    found = tangentlab.ntk(model, x, batch_size=None if count < 40 else 8)
    assert (found - expected).abs().max() <= 1e-9 * expected.abs().max()
