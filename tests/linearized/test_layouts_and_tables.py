"""Group normalization in channels-last layout, and tables with sparse gradients."""

import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError
from tangentlab.linearized import linearize
from tests.linearized.reference import difference, flat, jacobian, move, moved
from tests.linearized.test_agreement import _square


@pytest.mark.parametrize("channels", [64, 128])
def test_group_norm_in_channels_last_layout(channels: int) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.Conv2d(channels, channels, 3, padding=1),
        nn.GroupNorm(4, channels),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 2),
    )
    images = torch.randn(3, 3, 8, 8)
    for last in (False, True):
        if last:
            network, images = (
                network.to(memory_format=torch.channels_last),  # type: ignore[call-overload]
                images.contiguous(memory_format=torch.channels_last),
            )
        start, rows = jacobian(network, images)
        lin = linearize(network)
        move(lin, 0.01)
        expected = start + rows @ flat(lin.displacement().values())
        output = lin(images)
        assert difference(output.detach().reshape(-1), expected) < 1e-4
        output.square().sum().backward()
        grads = flat(p.grad for p in lin.parameters())
        assert difference(grads, 2 * rows.T @ expected) < 1e-4
        with torch.no_grad():
            assert difference(lin(images).reshape(-1), expected) < 1e-4


class Words(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = (
            nn.EmbeddingBag(7, 5, mode="mean", sparse=True)
            if kind == "bag"
            else nn.Embedding(7, 5, sparse=True, padding_idx=2)
        )
        self.out = nn.Linear(5, 3)
        self.kind = kind

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.table(tokens)
        h = torch.tanh(h if self.kind == "bag" else h.sum(1))
        return self.out(_square(h) if self.kind == "reverse" else h)


@pytest.mark.parametrize("kind", ["table", "bag", "reverse"])
def test_sparse_gradients(kind: str) -> None:
    model = Words(kind).double()
    tokens = torch.tensor([[0, 2, 1], [3, 3, 6], [1, 5, 2]])
    dense = Words(kind).double()
    dense.table.sparse = False
    lin, expected, rows = moved(model, tokens, like=dense)
    output = lin(tokens)
    assert difference(output.detach().reshape(-1), expected) < 1e-9
    output.square().sum().backward()
    grads = flat(p.grad.to_dense() for p in lin.parameters())
    assert difference(grads, 2 * rows.T @ expected) < 1e-9
    with torch.no_grad():
        assert difference(lin(tokens).reshape(-1), expected) < 1e-9


def test_tables_inside_transforms_and_compiled() -> None:
    """The row of padding has no gradient there either."""
    kind = "table"
    tokens = torch.tensor([[0, 2, 1], [3, 3, 6], [1, 5, 2]])
    dense = Words(kind).double()
    dense.table.sparse = False
    lin, expected, rows = moved(Words(kind).double(), tokens, like=dense)
    parameters = {name: p.detach() for name, p in lin.named_parameters()}

    def output(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(lin, parameters, tokens).reshape(-1)

    assert difference(output(parameters), expected) < 1e-9
    found = torch.func.jacrev(output)(parameters)
    assert difference(torch.cat([found[name].reshape(9, -1) for name in parameters], 1), rows) < 1e-9
    torch._dynamo.reset()
    compiled = torch.compile(lin, backend="eager")(tokens)
    assert difference(compiled.detach().reshape(-1), expected) < 1e-9


def test_bags_inside_transforms_are_refused() -> None:
    """PyTorch has no forward mode of them, and no rule is at work there."""
    lin = linearize(Words("bag").double())
    parameters = {name: p.detach() for name, p in lin.named_parameters()}
    tokens = torch.tensor([[0, 2, 1], [3, 3, 6]])
    with pytest.raises(TangentError, match="forward-mode derivative") as refusal:
        torch.func.jacrev(lambda p: torch.func.functional_call(lin, p, tokens))(parameters)
    assert refusal.value.remedy


def test_scaled_tables_are_refused_inside_transforms() -> None:
    table = nn.Embedding(7, 5, scale_grad_by_freq=True)
    lin = linearize(nn.Sequential(table, nn.Flatten(), nn.Linear(15, 2)))
    parameters = {name: p.detach() for name, p in lin.named_parameters()}
    tokens = torch.tensor([[0, 2, 1], [3, 3, 6]])
    with pytest.raises(TangentError, match="scale_grad_by_freq"):
        torch.func.jacrev(lambda p: torch.func.functional_call(lin, p, tokens))(parameters)
