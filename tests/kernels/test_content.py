"""Models in which what happens to a sample depends on its content: three probed samples are not enough."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tangentlab
from tests.kernels.parts import Functional
from tests.kernels.test_options import close


def sorted_rows(m: Any, x: Tensor) -> Tensor:
    """Sequences sorted by length, as for packing."""
    order = (x[..., 0] != 0).sum(1).argsort(descending=True, stable=True)
    return m.out(m.a(x[order]).tanh().sum(1))[order.argsort()]


def packed(m: Any, x: Tensor) -> Tensor:
    """Only the positions that are not padding, one after the other."""
    mask = x[..., 0] != 0
    hidden = torch.zeros(*x.shape[:2], 3, dtype=x.dtype)
    hidden[mask] = m.a(x[mask]).tanh()
    return m.out(hidden.sum(1))


def experts(m: Any, x: Tensor) -> Tensor:
    """Each sample goes to the expert that its first entry names."""
    x = x.mean(1)
    first = x[:, 0] > 0
    hidden = torch.zeros(len(x), 3, dtype=x.dtype)
    hidden[first] = m.a(x[first])
    hidden[~first] = m.b(x[~first])
    return m.out(hidden.tanh())


def swapped(m: Any, x: Tensor) -> Tensor:
    """Two layers whose order the first sample of the batch decides."""
    x = x.mean(1)
    one, two = (m.p, m.q) if x[0, 0] > 0 else (m.q, m.p)
    return F.linear(torch.tanh(F.linear(x, one)), two)


def shortened(m: Any, x: Tensor) -> Tensor:
    """As many positions as the longest sample of the batch has."""
    longest = int((x[..., 0] != 0).sum(1).max())
    return m.out((m.a(x[:, :longest]) * (x[:, :longest, :1] != 0)).tanh().sum(1))


MODELS = {f.__name__: f for f in (sorted_rows, packed, experts, shortened)}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch_size", [None, 1, 4])
def test_content_decides(name: str, batch_size: int | None) -> None:
    torch.manual_seed(0)
    model = Functional(
        MODELS[name],
        a=nn.Linear(4, 3),
        b=nn.Linear(4, 3),
        out=nn.Linear(3, 2),
    ).double()
    x = torch.randn(13, 4, 4).double()
    lengths = torch.tensor([4, 2, 3, 3, 1, 4, 2, 4, 3, 1, 3, 2, 4])
    x[torch.arange(4) >= lengths[:, None]] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = tangentlab.ntk(model, x, batch_size=batch_size)
        diagonal = tangentlab.ntk(model, x, batch_size=batch_size, diagonal=True)
    expected = tangentlab.reference.ntk(model, x)
    assert close(found, expected)
    assert close(diagonal, torch.stack([expected[n, :, n] for n in range(13)]))


def test_first_sample_decides_for_all() -> None:
    torch.manual_seed(0)
    model = Functional(swapped, p=torch.randn(4, 4), q=torch.randn(4, 4)).double()
    x = torch.randn(5, 1, 4).double()
    x[0, 0, 0], x[1:, 0, 0] = 1, -1
    with pytest.raises(tangentlab.TangentError, match="influence each other"):
        tangentlab.ntk(model, x, batch_size=1)


def hidden_parts() -> dict[str, Callable[[], nn.Module]]:
    from tests.kernels.parts import OwnFunction

    return {
        "scripted": lambda: torch.jit.script(nn.Linear(4, 3)),
        "own function": lambda: Functional(lambda m, x: OwnFunction.apply(x, m.w), w=torch.randn(4, 3)),
    }


@pytest.mark.parametrize("part", ["scripted", "own function"])
def test_hidden_parameter_that_is_silent_at_the_probe(part: str) -> None:
    """A parameter that no rule sees has no gradient on the probed samples, and has one on others."""
    torch.manual_seed(0)
    model = Functional(
        lambda m, x: m.a(x[:, :4]) + x[:, 4:] * m.b(x[:, :4].contiguous()), a=nn.Linear(4, 3), b=hidden_parts()[part]()
    ).double()
    x = torch.randn(9, 5).double()
    x[:, 4] = 0
    x[1:4, 4] = 1
    assert close(tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x))


def test_two_sides_that_use_a_weight_differently() -> None:
    torch.manual_seed(0)
    forwards = [
        lambda m, x: x.mean(1) @ m.w if x.shape[1] > 2 else F.linear(x.mean(1), m.w),
        lambda m, x: F.linear(x.mean(1), m.w.roll(x.shape[1], 0)),
        lambda m, x: x.mean(1) + m.v if x.shape[1] > 2 else F.linear(x.mean(1), m.w),
    ]
    for forward in forwards:
        model = Functional(forward, w=torch.randn(4, 4), v=torch.randn(4)).double()
        x1, x2 = torch.randn(5, 2, 4).double(), torch.randn(6, 3, 4).double()
        expected = tangentlab.reference.ntk(model, x1, x2)
        assert (tangentlab.ntk(model, x1, x2) - expected).norm() <= 1e-10 * max(float(expected.norm()), 1.0)


def test_samples_too_much_alike_to_locate() -> None:
    """Blank samples at the probe leave the layout of (positions * batch) rows open."""
    torch.manual_seed(0)
    model = Functional(
        lambda m, t: m.a(m.e(t).transpose(0, 1).flatten(0, 1)).view(t.shape[1], -1, 3).tanh().mean(0),
        e=nn.Embedding(6, 4),
        a=nn.Linear(4, 3),
    ).double()
    x = torch.randint(1, 6, (12, 3))
    x[[0, 5, 6, 11]] = 0
    assert close(tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x))
    other = torch.randint(1, 6, (4, 3))
    assert close(tangentlab.ntk(model, other, x), tangentlab.reference.ntk(model, other, x))
    assert close(tangentlab.ntk(model, other, x[:1]), tangentlab.reference.ntk(model, other, x[:1]))


def test_outputs_that_sum_to_nearly_nothing() -> None:
    """A layer norm at the end: the sum of logits is rounding and says nothing about influence between samples."""
    for seed in range(6):
        torch.manual_seed(seed)
        layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        model = Functional(lambda m, x: m.a(x).mean(1), a=layer).double().eval()
        x = torch.randn(5, 3, 6).double()
        full = tangentlab.reference.ntk(model, x)
        found = tangentlab.ntk(model, x, readout="pntk")
        assert (found - full.sum((1, 3)) / 6).norm() <= 1e-10 * full.norm()


def test_single_precision_inside_a_double_model() -> None:
    torch.manual_seed(0)
    model = Functional(
        lambda m, x: m.b(m.n(m.a(x).float()).double()), a=nn.Linear(4, 5), n=nn.LayerNorm(5), b=nn.Linear(5, 2)
    )
    model.a.double()
    model.b.double()
    x = torch.randn(6, 4).double()
    found = tangentlab.ntk(model, x, parameters=["a", "b"])
    assert close(found, tangentlab.reference.ntk(model, x, parameters=["a", "b"]), 1e-5)


def test_fast_path_that_recording_switches_off() -> None:
    """A frozen encoder takes another code path without gradients, and zeroes what is padded."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1).requires_grad_(False)
    model = Functional(
        lambda m, x: m.out(m.e(x, src_key_padding_mask=x[..., 0] == 0).mean(1)), e=encoder, out=nn.Linear(6, 2)
    ).eval()
    x = torch.randn(6, 4, 6)
    x[1::2, 2:] = 0
    expected = tangentlab.reference.ntk(model, x)
    assert close(tangentlab.ntk(model, x), expected, 1e-4)
