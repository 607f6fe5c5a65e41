"""What a sample holds decides where its rows go, which layer sees them, or how often."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(by=("sum", "length", "first"))
def sorted_samples(d: int, t: int, by: str) -> nn.Module:
    """The batch sorted by what samples hold, as for packing."""

    def forward(m: Any, x: Tensor) -> Tensor:
        keys = {"sum": x.sum((1, 2)), "length": (x[..., 0] > 0).sum(1), "first": -x[:, 0, 0]}
        order = keys[by].argsort(stable=True)
        return m.a(x[order])[order.argsort()]

    return Functional(forward, a=nn.Linear(d, d))


@block()
def swapped_pair(d: int, t: int) -> nn.Module:
    """The two samples with the largest and the smallest sum change places before a layer, and back after it."""

    def forward(m: Any, x: Tensor) -> Tensor:
        order, sums = torch.arange(len(x)), x.sum((1, 2))
        one, two = sums.argmax(), sums.argmin()
        order[one], order[two] = two, one
        return m.a(x[order])[order]

    return Functional(forward, a=nn.Linear(d, d))


@block()
def sorted_positions(d: int, t: int) -> nn.Module:
    """The positions of a sample sorted by their first feature."""

    def forward(m: Any, x: Tensor) -> Tensor:
        order = x[..., :1].argsort(1).expand_as(x)
        return m.a(x.gather(1, order))

    return Functional(forward, a=nn.Linear(d, d))


@block()
def masked_rows(d: int, t: int) -> nn.Module:
    """Only the positions that a mask keeps, one after the other."""

    def forward(m: Any, x: Tensor) -> Tensor:
        mask = x[..., 0] > 0
        y = torch.zeros_like(x)
        y[mask] = m.a(x[mask])
        return y + 0.1 * x

    return Functional(forward, a=nn.Linear(d, d))


@block(placed=("mask", "index", "scatter"))
def experts(d: int, t: int, placed: str) -> nn.Module:
    """Each position goes to the expert that its content names."""

    def forward(m: Any, x: Tensor) -> Tensor:
        rows = x.reshape(-1, d)
        chosen = (rows[:, 0] > 0).long() + (rows[:, 1] > 0).long()
        y = torch.zeros_like(rows)
        for number, layer in enumerate(m.layers):
            if placed == "mask":
                y[chosen == number] = layer(rows[chosen == number])
            else:
                where = (chosen == number).nonzero().flatten()
                if placed == "index":
                    y = y.index_add(0, where, layer(rows[where]))
                else:
                    y = y.scatter(0, where[:, None].expand(-1, d), layer(rows[where]))
        return y.view(x.shape)

    return Functional(forward, layers=nn.ModuleList(nn.Linear(d, d) for _ in range(3)))


@block(k=(1, 2))
def routed(d: int, t: int, k: int) -> nn.Module:
    """A mixture of experts with weights of the chosen ones."""

    def forward(m: Any, x: Tensor) -> Tensor:
        shares, chosen = m.gate(x).softmax(-1).topk(k, -1)
        weights = m.w[chosen]
        return torch.einsum("btk,btd,btkde->bte", shares, x, weights)

    return Functional(forward, gate=nn.Linear(d, 3), w=torch.randn(3, d, d))


@block()
def routed_samples(d: int, t: int) -> nn.Module:
    """Whole samples sent to one of two layers and joined again in the order of the layers."""

    def forward(m: Any, x: Tensor) -> Tensor:
        first = x.sum((1, 2)) > 0
        order = torch.cat([first.nonzero(), (~first).nonzero()]).flatten()
        joined = torch.cat([m.a(x[first]), m.b(x[~first])])
        return joined[order.argsort()]

    return Functional(forward, a=nn.Linear(d, d), b=nn.Linear(d, d))


@block()
def picked(d: int, t: int) -> nn.Module:
    """The position with the largest first feature, for all positions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        best = x[..., 0].argmax(1)
        return m.a(x[torch.arange(len(x)), best]).unsqueeze(1) + x

    return Functional(forward, a=nn.Linear(d, d))


@block()
def branches(d: int, t: int) -> nn.Module:
    """A Python branch for every sample."""

    def forward(m: Any, x: Tensor) -> Tensor:
        return torch.stack([m.a(row) if row.sum() > 0 else m.b(row) * 0.5 for row in x])

    return Functional(forward, a=nn.Linear(d, d), b=nn.Linear(d, d))


@block()
def looped(d: int, t: int) -> nn.Module:
    """As many rounds as the sample asks for, for those that are left."""

    def forward(m: Any, x: Tensor) -> Tensor:
        rounds = (x[:, 0] > 0).sum(1).clamp(max=2)
        for number in range(int(rounds.max()) if len(x) else 0):
            going = (rounds > number)[:, None, None]
            x = torch.where(going, m.a(x).tanh(), x)
        return x + 0.0

    return Functional(forward, a=nn.Linear(d, d))


@block()
def unique_rows(d: int, t: int) -> nn.Module:
    """Each distinct row is computed once and given to all samples that hold it."""

    def forward(m: Any, x: Tensor) -> Tensor:
        codes = (x.flatten(0, 1) > 0).long()
        distinct, back = codes.unique(dim=0, return_inverse=True)
        return m.a(distinct.to(x)).tanh()[back].view(x.shape) * x

    return Functional(forward, a=nn.Linear(d, d))


@block(refusable=("linearized",))
def packed(d: int, t: int) -> nn.Module:
    """A recurrent layer on packed sequences."""

    def forward(m: Any, x: Tensor) -> Tensor:
        lengths = 1 + (x[:, 1:, 0] > 0).sum(1)
        rows = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(m.a(rows)[0], batch_first=True, total_length=t)[0] + x

    return Functional(forward, a=nn.GRU(d, d, batch_first=True))


@block()
def message_passing(d: int, t: int) -> nn.Module:
    """Rows as nodes of a graph of all samples, edges by content, sums by index."""

    def forward(m: Any, x: Tensor) -> Tensor:
        nodes = x.reshape(-1, d)
        adjacent = (x @ x.mT > 0).nonzero()
        source, target = adjacent[:, 0] * t + adjacent[:, 1], adjacent[:, 0] * t + adjacent[:, 2]
        return m.b(nodes).index_add(0, target, m.a(nodes)[source]).view(x.shape)

    return Functional(forward, a=nn.Linear(d, d), b=nn.Linear(d, d))


@block()
def shortened(d: int, t: int) -> nn.Module:
    """As many positions as the longest sample of the batch needs; the rest is padding that counts for nothing."""

    def forward(m: Any, x: Tensor) -> Tensor:
        lengths = 1 + (x[:, 0] > 0).sum(1) % t
        longest = int(lengths.max()) if len(x) else 0
        kept = torch.arange(longest) < lengths[:, None]
        y = m.a(x[:, :longest]) * kept[..., None]
        return torch.cat([y, torch.zeros_like(x[:, longest:])], 1) + 0.1 * x

    return Functional(forward, a=nn.Linear(d, d))


@block()
def selected_weights(d: int, t: int) -> nn.Module:
    """Rows of a parameter chosen by the content of samples."""
    return Functional(lambda m, x: x * m.p[(x.sum((1, 2)) > 0).long()].unsqueeze(1), p=torch.randn(2, d))


@block()
def median_split(d: int, t: int) -> nn.Module:
    """Different layers for the features above and below the median of a position."""
    return Functional(
        lambda m, x: torch.where(x > x.median(-1, keepdim=True).values, m.a(x), m.b(x)),
        a=nn.Linear(d, d),
        b=nn.Linear(d, d),
    )
