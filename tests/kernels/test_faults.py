"""Faults that networks of other authors brought to light, each in its smallest form."""

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tests.kernels.parts import Functional


def plain_kernel(model: nn.Module, x: Tensor) -> Tensor:
    """By autograd on all samples at once, one output at a time: no batch of one, no recorder."""
    rows = []
    for n in range(len(x)):
        outputs = model(x)[n].flatten()
        grads = [
            torch.autograd.grad(o, list(model.parameters()), retain_graph=True, allow_unused=True) for o in outputs
        ]
        sizes = [p.numel() for p in model.parameters()]
        rows += [
            torch.cat([o.new_zeros(s) if g is None else g.flatten() for g, s in zip(row, sizes, strict=True)])
            for o, row in zip(outputs, grads, strict=True)
        ]
    jacobian = torch.stack(rows)
    size = len(rows) // len(x)
    return (jacobian @ jacobian.T).view(len(x), size, len(x), size)


NORMALIZATIONS = {
    "batch": lambda: nn.BatchNorm2d(8),
    "instance": lambda: nn.InstanceNorm2d(8, affine=True),
    "functional": lambda: Functional(lambda m, x: F.instance_norm(x, weight=m.w), w=torch.randn(8)),
    "batch of batches": lambda: Functional(lambda m, x: m.n(x.unsqueeze(2)).squeeze(2), n=nn.BatchNorm3d(8)),
}


@pytest.mark.parametrize("name", NORMALIZATIONS)
@pytest.mark.parametrize("flat", ["width first", "channels last"])
def test_normalization_of_a_batch_of_one(name: str, flat: str) -> None:
    """PyTorch's gradient of a normalization is wrong for some strides of the incoming gradient in a batch of one."""
    torch.manual_seed(0)
    order = (0, 2, 3, 1) if flat == "channels last" else (2, 0, 3, 1)

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.norm(m.conv(x)).permute(order)
        y = torch.tanh(y.contiguous() * m.scale)
        return y.permute([order.index(i) for i in range(4)]).flatten(1).sum(1, keepdim=True)

    model = Functional(forward, conv=nn.Conv2d(3, 8, 3), norm=NORMALIZATIONS[name](), scale=torch.randn(8)).double()
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_var.uniform_(0.5, 2)
    model.eval()
    x = torch.randn(4, 3, 6, 6).double()
    expected = plain_kernel(model, x)
    assert float((tangentlab.ntk(model, x) - expected).norm() / expected.norm()) < 1e-10
    assert float((tangentlab.reference.ntk(model, x) - expected).norm() / expected.norm()) < 1e-10
    single = tangentlab.ntk(model, x, batch_size=1)
    assert float((single - expected).norm() / expected.norm()) < 1e-10


@pytest.mark.parametrize("expert", [lambda: nn.Linear(4, 2), lambda: nn.GRUCell(4, 2)], ids=["dense", "recurrent"])
def test_experts_that_the_probe_does_not_see(expert: Any) -> None:
    """Three experts, each sample sent to one; the three probed samples miss some of them."""
    torch.manual_seed(0)

    def forward(m: Any, x: Tensor) -> Tensor:
        chosen = x[:, 0].long()
        out = x.new_zeros(len(x), 2)
        for number in chosen.unique().tolist():
            out[chosen == number] = m.experts[number](x[chosen == number])
        return out

    model = Functional(forward, experts=nn.ModuleList(expert() for _ in range(3))).double()
    x = torch.randn(5, 4).double()
    for choice in ([0, 2, 1, 2, 0], [0, 1, 0, 2, 0], [0, 0, 1, 2, 0], [1, 2, 0, 1, 1]):
        x[:, 0] = torch.tensor(choice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = tangentlab.ntk(model, x)
        expected = tangentlab.reference.ntk(model, x)
        assert float((found - expected).norm() / expected.norm()) < 1e-10


@pytest.mark.parametrize("kept", [[], [4], [0, 5, 10], [0], [1, 5]], ids=str)
def test_rows_that_a_mask_selects(kept: list[int]) -> None:
    """None, one or all of the probed samples are selected; a weight has another use that a rule knows."""
    torch.manual_seed(0)

    def forward(m: Any, x: Tensor) -> Tensor:
        mask, y = x[:, 0] > 0, torch.zeros_like(x)
        h = x + m.a.weight[0]
        y[mask] = m.a(h[mask])
        return m.out(y + 0.1 * h)

    model = Functional(forward, a=nn.Linear(4, 4), out=nn.Linear(4, 2)).double()
    x = torch.randn(11, 4).double()
    x[:, 0] = -x[:, 0].abs()
    x[[2, 7, *kept], 0] *= -1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model, x)
    expected = tangentlab.reference.ntk(model, x)
    assert float((found - expected).norm() / expected.norm()) < 1e-10


def test_outputs_in_single_precision_of_a_double_model() -> None:
    torch.manual_seed(0)
    model = Functional(lambda m, x: m.b(m.a(x).tanh()).float(), a=nn.Linear(4, 5), b=nn.Linear(5, 2)).double()
    x = torch.randn(6, 4).double()
    expected = tangentlab.reference.ntk(model, x)
    assert float((tangentlab.ntk(model, x) - expected).norm() / expected.norm()) < 1e-5


def test_views_of_parameters_made_without_gradients() -> None:
    """They claim to require gradients, and have no graph."""
    torch.manual_seed(0)

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            row, rows = m.c[0], m.c.expand(len(x), -1)
        return m.a(x).tanh() * rows + row + m.c.sum() * x[:, :3]

    model = Functional(forward, a=nn.Linear(4, 3), c=torch.randn(1, 3)).double()
    x = torch.randn(6, 4).double()
    expected = plain_kernel(model, x)
    assert float((tangentlab.ntk(model, x) - expected).norm() / expected.norm()) < 1e-10


def test_tokens_of_few_bits() -> None:
    torch.manual_seed(0)
    model = Functional(lambda m, t: m.a(m.e(t).mean(1)), e=nn.Embedding(6, 4), a=nn.Linear(4, 3)).double()
    x = torch.randint(0, 6, (7, 5), dtype=torch.int32)
    expected = tangentlab.reference.ntk(model, x)
    assert float((tangentlab.ntk(model, x) - expected).norm() / expected.norm()) < 1e-10
    assert float((tangentlab.ntk(model, x, diagonal=True).diagonal(dim1=1, dim2=2).sum()
        - expected.flatten(2).flatten(0, 1).trace()).abs()) < 1e-8  # fmt: skip


class _Raises(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:  # type: ignore[override]
        raise AssertionError("not to be called")


def test_backward_that_raises() -> None:
    model = Functional(lambda m, x: _Raises.apply(m.a(x)), a=nn.Linear(4, 3))
    with pytest.raises(tangentlab.TangentError, match="cannot differentiate"):
        tangentlab.ntk(model, torch.randn(4, 4))


def test_random_numbers_that_nothing_uses_and_an_attribute_that_changes() -> None:
    """The outputs are computed once more then, and what that call draws is out of sight."""

    def forward(m: Any, x: Tensor) -> Tensor:
        torch.rand([])
        m.kept = m.a(x)
        return m.b(m.kept.tanh())

    model = Functional(forward, a=nn.Linear(4, 3), b=nn.Linear(3, 3)).double().eval()
    x = torch.randn(6, 4).double()
    state = torch.get_rng_state()
    found = tangentlab.ntk(model, x)
    assert torch.equal(state, torch.get_rng_state())
    expected = plain_kernel(model, x)
    assert float((found - expected).norm() / expected.norm()) < 1e-10


@torch.jit.script
def _hidden(x: Tensor, noise: Tensor) -> Tensor:
    return x * noise


def test_random_numbers_used_out_of_sight_are_refused() -> None:
    model = Functional(lambda m, x: _hidden(m.a(x), torch.rand(3)), a=nn.Linear(4, 3))
    with pytest.raises(tangentlab.TangentError):
        tangentlab.ntk(model, torch.randn(6, 4))


def test_random_numbers_that_nothing_uses() -> None:
    """Layer drop draws a number for each layer, and in evaluation mode looks at none of them."""
    torch.manual_seed(0)

    def forward(m: Any, x: Tensor) -> Tensor:
        drawn = torch.rand([])
        return m.a(x) if m.training and drawn < 0.1 else m.b(m.a(x).tanh())

    model = Functional(forward, a=nn.Linear(4, 3), b=nn.Linear(3, 3)).double().eval()
    x = torch.randn(6, 4).double()
    state = torch.get_rng_state()
    found = tangentlab.ntk(model, x)
    assert torch.equal(state, torch.get_rng_state())
    expected = torch.stack([plain_kernel(model, x)])[0]
    assert float((found - expected).norm() / expected.norm()) < 1e-10
    model.train()
    with pytest.raises(tangentlab.TangentError, match="random numbers"):
        tangentlab.ntk(model, x)
