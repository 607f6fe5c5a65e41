"""Readouts that are functions of a sample's outputs and its target, against the plain reference."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tangentlab
from tests.kernels.cases import CASES, Case, build
from tests.kernels.test_exact import relative

torch.manual_seed(0)
X = torch.randn(7, 6, dtype=torch.float64)
CLASSES = torch.tensor([0, 3, 1, 2, 2, 0, 3])
REAL = torch.randn(7, 4, dtype=torch.float64)


def network(outputs: int = 4) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, outputs)).double()


def entropy(outputs: Tensor, target: None) -> Tensor:
    return -(outputs.softmax(0) * outputs.log_softmax(0)).sum()


def two_numbers(outputs: Tensor, target: Tensor) -> Tensor:
    return torch.stack([outputs @ target, outputs.square().sum()])


def decides_by_value(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs[int(target)] if outputs[0].item() > 0 else outputs.exp().sum()


def by_name(outputs: Tensor, target: dict[str, Tensor]) -> Tensor:
    return target["weight"] * F.cross_entropy(outputs, target["label"])


READOUTS: dict[str, tuple[Any, Any]] = {
    "cross-entropy": ("loss", CLASSES),
    "squared": ("loss", REAL),
    "margin": ("margin", CLASSES),
    "label": ("label", CLASSES),
    "a loss module": (nn.CrossEntropyLoss(label_smoothing=0.1), CLASSES),
    "no target": (entropy, None),
    "two numbers": (two_numbers, REAL),
    "decides by value": (decides_by_value, CLASSES),
    "a dict of targets": (by_name, {"label": CLASSES, "weight": torch.rand(7).double()}),
    "a list of targets": (lambda o, t: o[len(t)], ["", "a", "ab", "abc", "", "b", "c"]),
}


def taken(targets: Any, chosen: slice) -> Any:
    if isinstance(targets, dict):
        return {key: part[chosen] for key, part in targets.items()}
    return None if targets is None else targets[chosen]


@pytest.mark.parametrize("name", READOUTS)
def test_everything_that_takes_a_readout(name: str) -> None:
    readout, targets = READOUTS[name]
    model = network()
    options: dict[str, Any] = {"readout": readout, "targets": targets}
    expected = tangentlab.reference.ntk(model, X, **options)
    found = tangentlab.ntk(model, X, batch_size=3, **options)
    assert found.shape == ((7, 2, 7, 2) if name == "two numbers" else (7, 7))
    assert relative(found, expected) < 1e-12
    size = 2 if name == "two numbers" else 1
    matrix = expected.reshape(7 * size, 7 * size)
    some = slice(2, 5)
    both = None if targets is None else (targets, taken(targets, some))
    crossed = tangentlab.ntk(model, X, X[some], readout=readout, targets=both)
    assert relative(crossed.reshape(7 * size, -1), matrix[:, 2 * size : 5 * size]) < 1e-12
    blocks = torch.stack([matrix.view(7, size, 7, size)[n, :, n] for n in range(7)])
    assert relative(tangentlab.ntk(model, X, diagonal=True, **options).reshape(7, size, size), blocks) < 1e-12
    layers = tangentlab.ntk(model, X, per_layer=True, **options)
    assert set(layers) == {"0", "2"}
    assert relative(torch.stack(list(layers.values())).sum(0), expected) < 1e-12
    v = torch.randn(7 * size, 2, dtype=torch.float64)
    operator = tangentlab.NTKOperator(model, X, batch_size=2, **options)
    assert relative(operator @ v, matrix @ v) < 1e-12
    assert relative(operator.diagonal(), matrix.diagonal()) < 1e-12
    assert not (tangentlab.explain(model, X, **options).form == "fallback").any()


def test_sketch_estimates_the_kernel_of_the_function() -> None:
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4)).double()
    options: dict[str, Any] = {"readout": "margin", "targets": CLASSES}
    expected = tangentlab.reference.ntk(model, X, **options)
    errors = [
        relative(s.features @ s.features.T, expected)
        for s in (tangentlab.sketch(model, X, 512, seed=seed, **options) for seed in range(4))
    ]
    assert max(errors) < 3 * ((1 + float(expected.trace() / expected.norm()) ** 2) / 512) ** 0.5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("error:.*fallback:UserWarning")
def test_every_rule(case: Case) -> None:
    """The same rules are taken as for a linear readout, and give the reference."""
    model, x = build(case, 5, torch.float64)
    outputs = model(x).detach()
    for readout, targets in readouts_of(outputs):
        options: dict[str, Any] = {"readout": readout, "targets": targets}
        found = tangentlab.ntk(model, x, batch_size=2, **options)
        assert relative(found, tangentlab.reference.ntk(model, x, **options)) < 1e-10
    fallen = [(t.form == "fallback").sum() for t in (tangentlab.explain(model, x, **o) for o in ({}, options))]
    assert fallen[0] == fallen[1]


def readouts_of(outputs: Tensor) -> list[tuple[Any, Any]]:
    """Readouts of each kind for some outputs."""
    generator = torch.Generator().manual_seed(0)
    real = torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)
    found: list[tuple[Any, Any]] = [("loss", real)]
    if outputs.ndim == 2:
        classes = torch.randint(0, max(2, outputs.shape[1]), (len(outputs),), generator=generator)
        return [*found, ("margin", classes), ("loss", classes)]
    return [*found, (lambda o, t: (o.flatten().logsumexp(0) - (o * t).sum()).unsqueeze(0).repeat(2), real)]


class Pairs(Dataset[Any]):
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


@pytest.mark.parametrize("make", [TensorDataset, Pairs, lambda x, y: DataLoader(TensorDataset(x, y), batch_size=3)])
def test_targets_come_with_the_data(make: Any) -> None:
    model = network()
    expected = tangentlab.ntk(model, X, readout="margin", targets=CLASSES)
    assert torch.equal(tangentlab.ntk(model, make(X, CLASSES), readout="margin"), expected)
    crossed = tangentlab.ntk(model, make(X, CLASSES), make(X[:3], CLASSES[:3]), readout="margin")
    assert relative(crossed, expected[:, :3]) < 1e-12
    others = CLASSES.flip(0)
    found = tangentlab.ntk(model, make(X, CLASSES), readout="margin", targets=others)
    assert torch.equal(found, tangentlab.ntk(model, X, readout="margin", targets=others))


@pytest.mark.parametrize(
    "make", [list, lambda y: y.numpy(), lambda y: y.tolist(), lambda y: y[:, None], lambda y: y.byte()]
)
def test_kinds_of_targets(make: Any) -> None:
    model = network()
    expected = tangentlab.ntk(model, X, readout="loss", targets=CLASSES)
    assert torch.equal(tangentlab.ntk(model, X, readout="loss", targets=make(CLASSES)), expected)


def test_the_same_samples_with_other_targets() -> None:
    """Two sets of targets of one tensor are two sets of samples."""
    model = network()
    others = CLASSES.roll(1)
    found = tangentlab.ntk(model, X, X, readout="margin", targets=(CLASSES, others))
    assert relative(found, tangentlab.reference.ntk(model, X, X, readout="margin", targets=(CLASSES, others))) < 1e-12
    assert not torch.allclose(found, found.T)


def test_one_output_is_the_logit_of_class_one() -> None:
    model = network(1)
    classes = CLASSES % 2
    for name in ("loss", "margin"):
        found = tangentlab.ntk(model, X, readout=name, targets=classes)
        assert relative(found, tangentlab.reference.ntk(model, X, readout=name, targets=classes)) < 1e-12
    squared = tangentlab.ntk(model, X, readout="loss", targets=REAL[:, 0])
    assert relative(squared, tangentlab.reference.ntk(model, X, readout="loss", targets=REAL[:, :1])) < 1e-12


class Logits(nn.Module):
    """The logits themselves are the parameters."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.logits


@pytest.mark.parametrize("readout", ["loss", "margin"])
@pytest.mark.parametrize("size", [0.0, 10.0, 30.0, 40.0])
def test_saturated_in_single_precision(readout: str, size: float) -> None:
    """Where p is 1 to rounding, the gradient is right relative to itself: 1 - p is not computed from p."""
    logits = torch.tensor([[size, -1.0, 0.5], [-size / 3, 0.2, 0.1]])
    x, classes = torch.eye(2), torch.tensor([0, 0])
    found = tangentlab.ntk(Logits(logits), x, readout=readout, targets=classes)
    exact = tangentlab.reference.ntk(Logits(logits.double()), x.double(), readout="margin", targets=classes)
    if readout == "loss":  # d loss = -(1 - p) d margin, and 1 - p = 1 / (1 + exp(m))
        margins = [_margin(row.double()) for row in logits]
        chances = torch.tensor([1 / (1 + math.exp(m)) for m in margins], dtype=torch.float64)
        exact = exact * torch.outer(chances, chances)
    assert (found.double() / exact - 1).abs()[exact != 0].max() < 1e-5


def _margin(row: Tensor) -> float:
    return float(row[0] - torch.logsumexp(row[1:], 0))


def test_half_precision() -> None:
    model, x = network().to(torch.bfloat16), X.to(torch.bfloat16)
    found = tangentlab.ntk(model, x, readout="loss", targets=CLASSES)
    expected = tangentlab.reference.ntk(model.double(), x.double(), readout="loss", targets=CLASSES)
    assert relative(found, expected) < 0.05


def test_second_derivatives_of_the_log_odds() -> None:
    from tangentlab.kernels._named_readouts import log_odds

    logits = torch.randn(3, 4, 5, dtype=torch.float64, requires_grad=True)
    classes = torch.randint(0, 5, (3, 4))
    assert torch.autograd.gradcheck(lambda z: log_odds(z, classes), logits)
    assert torch.autograd.gradgradcheck(lambda z: log_odds(z, classes), logits)
