"""What cannot be attributed is refused with a reason, before anything is computed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tangentlab import TangentError
from tangentlab.attribution import Exact, Gradient, Representer, Trak, attribute
from tests.attribution.problem import network, samples

X, Y = samples(12, 0)
X_TEST, Y_TEST = samples(3, 1)


def counts(outputs: Tensor, target: Tensor) -> Tensor:
    return (outputs.argmax() == target).double()


def broken(outputs: Tensor, target: Tensor) -> Tensor:
    return outputs[target].abs().neg().log()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"targets": None}, "targets"),
    ({"test_targets": None}, "targets"),
    ({"targets": Y[:5]}, "12"),
    ({"targets": Y.double() + 0.5}, "integer|squared|classes|numbers"),
    ({"targets": Y + 10}, "class 1[012]"),
    ({"targets": Y - 5}, "class -5|class -"),
    ({"test_targets": Y_TEST + 10}, "class 1[012]"),
    ({"test": X_TEST[:0]}, "empty"),
    ({"train": X[:0]}, "empty"),
    ({"models": []}, "no models"),
    ({"models": "network"}, "type str"),
    ({"checkpoints": []}, "0 checkpoints"),
    ({"checkpoints": [{"weight": torch.zeros(1)}]}, "does not fit the model"),
    ({"checkpoints": ["absent.pt"]}, "absent.pt"),
    ({"checkpoints": [3]}, "type int"),
    ({"checkpoints": [{"model": network().state_dict()}]}, "Missing key"),
    ({"out": "/proc/nothing"}, "cannot be written"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED)
@pytest.mark.parametrize("method", ["trak", "exact"])
def test_bad_arguments(arguments: dict[str, Any], said: str, method: str) -> None:
    given: dict[str, Any] = {
        "models": network(), "train": X, "test": X_TEST, "method": method, "targets": Y, "test_targets": Y_TEST,
    } | arguments  # fmt: skip
    if method == "exact" and arguments.get("targets") is not None and arguments["targets"].is_floating_point():
        pytest.skip("kernel regression learns numbers")
    with pytest.raises(TangentError, match=said) as error:
        attribute(**given)
    assert error.value.remedy or error.value.why


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("magic", "no method 'magic'"),
        (Gradient(readout=counts), "not differentiable"),
        (Gradient(readout=broken), "NaN"),
        (Trak(readout=broken), "NaN"),
        (Trak(readout="full"), "3 numbers per sample"),
        (Gradient(readout="full"), "3 numbers per sample"),
        (Trak(k=10**6), "fewer than k"),
        (Trak(k=20, ridge=0.0), "linearly dependent"),
        (Exact("full", ridge=0.0), "singular"),
    ],
)
def test_methods_that_cannot_work(method: Any, said: str) -> None:
    with pytest.raises(TangentError, match=said):
        attribute(network(), X.repeat(2, 1), X_TEST, method, targets=Y.repeat(2), test_targets=Y_TEST)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Trak(k=0),
        lambda: Trak(ridge=-1.0),
        lambda: Trak(seed=-1),
        lambda: Gradient(rates=(float("nan"),)),
        lambda: Exact(readout="trace"),
        lambda: Exact(ridge="gcv"),
        lambda: Representer(ridge=-1.0),
    ],
)
def test_options_of_methods(make: Any) -> None:
    with pytest.raises(TangentError):
        make()


def test_representer_explains_one_number() -> None:
    y = torch.randn(12, 2, dtype=torch.float64)
    with pytest.raises(TangentError, match="2 numbers per sample"):
        attribute(network(), X, X_TEST, "representer", targets=y, test_targets=y[:3])
    single = network(outputs=1)
    with pytest.raises(TangentError, match="one output"):
        attribute(single, X, X_TEST, "exact", targets=Y.clamp(max=1), test_targets=Y_TEST.clamp(max=1))


def test_a_dataset_without_targets() -> None:
    class Inputs(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 12

        def __getitem__(self, index: int) -> Tensor:
            return X[index]

    for method in ("trak", "gradient", "exact"):
        with pytest.raises(TangentError, match="targets"):
            attribute(network(), Inputs(), TensorDataset(X_TEST, Y_TEST), method)


def test_nothing_is_written_before_the_first_refusal(tmp_path: Path) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(5, 3).double()

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + x.sum()  # samples influence each other

    out = tmp_path / "out"
    for method in ("gradient", "trak", Trak(k=4, features=out / "features")):
        with pytest.raises(TangentError, match="influence each other"):
            attribute(Sum(), X, X_TEST, method, targets=Y, test_targets=Y_TEST, out=out)
        assert not out.exists() or not list(out.rglob("*.*"))
        attribute(network(), X, X_TEST, "gradient", targets=Y, test_targets=Y_TEST, out=out)  # nothing is in the way
        shutil.rmtree(out)


@pytest.mark.parametrize(
    ("method", "budget", "said"),
    [("trak", 100, "The scores of 12 training"), ("exact", 5000, "Kernel regression with 12 rows")],
)
def test_what_does_not_fit_into_memory(method: str, budget: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(TangentError, match=said):
        attribute(
            network(), X, X_TEST, method, targets=Y, test_targets=Y_TEST, memory_budget=budget, out=tmp_path / "out"
        )
    assert not list(tmp_path.glob("out/*.npz"))
