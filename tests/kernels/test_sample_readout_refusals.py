"""What is wrong with a function of outputs and targets, or with the targets, is said clearly."""

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import tangentlab
from tangentlab import TangentError
from tests.kernels.test_sample_readouts import CLASSES, REAL, X, network

SEEN: list[Tensor] = []


def remembers(outputs: Tensor, target: Tensor) -> Tensor:
    SEEN.append(outputs)
    return sum(seen.sum() for seen in SEEN[-2:])


class Remembers(nn.Module):
    """Gradients of a sample pass to the one before it, though its value does not show it."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Tensor | None = None

    def forward(self, outputs: Tensor, target: Tensor) -> Tensor:
        before, self.before = self.before, outputs
        value = outputs[int(target)]
        return value if before is None else value + (before.sum() - before.sum().detach())


def under_no_grad(outputs: Tensor, target: Tensor) -> Tensor:
    with torch.no_grad():
        return outputs[target]


MODEL = network()

FUNCTIONS: dict[str, tuple[Any, str]] = {
    "not differentiable": (lambda o, t: (o.argmax() == t).double(), "not differentiable"),
    "detached": (lambda o, t: o[t].detach(), "not differentiable"),
    "constant": (lambda o, t: torch.tensor(1.0), "not differentiable"),
    "no_grad": (under_no_grad, "not differentiable"),
    "rounded": (lambda o, t: (10 * o).round()[t], "not differentiable"),
    "an integer": (lambda o, t: o.argmax(), "not differentiable"),
    "a float": (lambda o, t: o[0].item(), "returns float for one sample"),
    "None": (lambda o, t: None, "returns NoneType"),
    "a matrix": (lambda o, t: torch.outer(o, o), r"returns float64 \(4, 4\)"),
    "nothing": (lambda o, t: o[:0], r"returns float64 \(0,\)"),
    "NaN": (lambda o, t: o.sum() * torch.nan, "NaN or infinite"),
    "infinite": (lambda o, t: (o[t] * 0).log(), "NaN or infinite"),
    "no finite gradient": (lambda o, t: (o[t] * 0).abs().sqrt(), "gradient of the readout .* NaN or infinite"),
    "numbers that change": (lambda o, t: o[: int(t) + 1], "for different samples"),
    "an error": (lambda o, t: o[t, 0], "fails: IndexError"),
    "for a batch": (lambda o, t: F.cross_entropy(o, t.unsqueeze(1)), "fails: .*Error"),
    "too many arguments": (lambda o, t, s: o, "fails: TypeError"),
    "remembers values": (remembers, "mixes samples, remembers"),
    "remembers gradients": (Remembers(), "mixes samples, remembers"),
    "random": (lambda o, t: F.dropout(o, 0.5)[t] + o.sum(), "is random"),
    "uses parameters": (lambda o, t: o[t] + MODEL[0].weight.square().sum(), "uses parameters of the model"),
    "a class": (nn.CrossEntropyLoss, "returns CrossEntropyLoss"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    readout, message = FUNCTIONS[name]
    with pytest.raises(TangentError, match=message):
        tangentlab.ntk(MODEL, X, readout=readout, targets=CLASSES)
    with pytest.raises(TangentError, match=message):
        tangentlab.NTKOperator(MODEL, X, readout=readout, targets=CLASSES)


def test_a_function_that_fails_on_a_later_sample() -> None:
    with pytest.raises(TangentError, match="target 2"):
        tangentlab.ntk(MODEL, X, readout=lambda o, t: (t - 2).sign().abs().log() + o.sum(), targets=CLASSES)


def test_targets_of_a_function_that_are_missing() -> None:
    with pytest.raises(TangentError, match="fails") as refusal:
        tangentlab.ntk(MODEL, X, readout=lambda o, t: o[t + 0])
    assert "None, as the samples came without targets" in refusal.value.why


TARGETS: dict[str, tuple[Any, Any, str]] = {
    "missing": ("margin", None, "needs targets"),
    "missing for the loss": ("loss", None, "needs targets"),
    "too few": ("margin", CLASSES[:5], "7 samples, and there are 5 targets"),
    "too many": ("margin", torch.cat([CLASSES, CLASSES]), "there are 14 targets"),
    "a number": ("margin", 3, "of type int"),
    "a scalar tensor": ("margin", torch.tensor(3), "int64"),
    "text": ("margin", "labels", "of type str"),
    "a tuple": ("margin", tuple(CLASSES.tolist()), "two sets of samples"),
    "words": ("margin", list("abcdefg"), "of type str"),
    "some missing": ("margin", [0, 1, None, 2, 0, 1, 2], "list that makes no tensor"),
    "floats": ("margin", CLASSES.double(), r"float64 \(\)"),
    "one-hot": ("margin", F.one_hot(CLASSES), r"int64 \(4,\)"),
    "complex": ("label", CLASSES.to(torch.complex64), "complex64"),
    "class too large": ("margin", torch.tensor([0, 1, 2, 3, 4, 0, 1]), "class 4"),
    "in the middle of many": ("loss", torch.tensor([0, 1, 2, 9, 0, 0, 1]), "class 9"),
    "negative": ("label", torch.tensor([0, 1, -100, 3, 0, 0, 1]), "class -100"),
    "float classes for the loss": ("loss", CLASSES.double(), "squared loss"),
    "transposed": ("loss", REAL.T, "samples"),
    "other outputs": ("loss", REAL[:, :3], "squared loss"),
    "NaN": ("loss", REAL * torch.nan, "NaN or infinite"),
    "of a linear readout": ("pntk", CLASSES, "does not depend on targets"),
    "of a matrix": (torch.eye(4), CLASSES, "readout matrix"),
    "of an index": (0, CLASSES, "does not depend on targets"),
}


@pytest.mark.parametrize("name", TARGETS)
def test_targets(name: str) -> None:
    readout, targets, message = TARGETS[name]
    for compute in (tangentlab.ntk, tangentlab.NTKOperator, lambda *a, **o: tangentlab.sketch(*a, 8, **o)):
        with pytest.raises(TangentError) as refusal:
            compute(MODEL, X, readout=readout, targets=targets)
        assert_says(message, refusal.value)


def assert_says(message: str, error: TangentError) -> None:
    assert re.search(message, str(error)), str(error)


def test_targets_of_two_sets() -> None:
    for targets in (CLASSES, (CLASSES, CLASSES[:3], CLASSES), (CLASSES,)):
        with pytest.raises(TangentError, match="not a pair"):
            tangentlab.ntk(MODEL, X, X[:3], readout="margin", targets=targets)
    with pytest.raises(TangentError, match="x2 has 3 samples"):
        tangentlab.ntk(MODEL, X, X[:3], readout="margin", targets=(CLASSES, CLASSES))
    with pytest.raises(TangentError, match="needs targets"):
        tangentlab.ntk(MODEL, TensorDataset(X, CLASSES), X[:3], readout="margin")


def test_targets_of_a_dataset() -> None:
    wrong = CLASSES.clone()
    wrong[4] = 7
    with pytest.raises(TangentError, match="class 7"):
        tangentlab.ntk(MODEL, TensorDataset(X, wrong), readout="margin")
    with pytest.raises(TangentError, match="class 7"):
        tangentlab.ntk(MODEL, TensorDataset(X, CLASSES), readout="margin", targets=wrong)
    with pytest.raises(TangentError, match="needs targets"):
        tangentlab.ntk(MODEL, TensorDataset(X), readout="margin")
    with pytest.raises(TangentError, match="needs targets"):
        tangentlab.ntk(MODEL, TensorDataset(X, CLASSES), readout="margin", input=lambda item: item[0])


def test_a_loader_that_shuffles() -> None:
    loader = DataLoader(TensorDataset(X, CLASSES), batch_size=2, shuffle=True)
    with pytest.raises(TangentError, match="DataLoader that shuffles"):
        tangentlab.ntk(MODEL, loader, readout="margin", targets=CLASSES)
    assert tangentlab.ntk(MODEL, loader, readout="margin").shape == (7, 7)


def test_a_hinge_loss_may_be_zero() -> None:
    kernel = tangentlab.ntk(MODEL, X, readout=lambda o, t: F.relu(o[t] - 100), targets=CLASSES)
    assert not kernel.any()


def test_a_function_may_write_to_its_target() -> None:
    def shifted(outputs: Tensor, target: Tensor) -> Tensor:
        target += 1
        return outputs[target - 1]

    given = CLASSES.clone()
    found = tangentlab.ntk(MODEL, X, readout=shifted, targets=given)
    assert torch.equal(given, CLASSES)
    assert torch.allclose(found, tangentlab.ntk(MODEL, X, readout="label", targets=CLASSES), rtol=1e-12)


def test_one_output_has_no_label() -> None:
    with pytest.raises(TangentError, match="one output per class"):
        tangentlab.ntk(network(1), X, readout="label", targets=CLASSES % 2)
    with pytest.raises(TangentError, match="class 3"):
        tangentlab.ntk(network(1), X, readout="margin", targets=CLASSES)


def test_names() -> None:
    with pytest.raises(TangentError, match="There is no readout 'margins'") as refusal:
        tangentlab.ntk(MODEL, X, readout="margins")
    assert "'next_token'" in refusal.value.remedy
