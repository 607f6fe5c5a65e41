"""One exploration for all tests of the page: a small network on digits, before and after training."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

import tangentlab
from tangentlab import data, training

HOSTILE = (
    "</script><script>window.hit=1</script>",
    "\"'><img src=x onerror=window.hit=1>",
    "\u202eright to left \u05d0\u05d1\u05d2",
    "emoji \U0001f600 & <b>bold</b>",
    "=cmd|' /C calc'!A0",
)


@pytest.fixture(scope="session")
def digits() -> data.ImageData:
    return data.load("digits", n_train=60, n_test=20)


@pytest.fixture(scope="session")
def trained(digits: data.ImageData) -> tuple[Any, dict[str, Any]]:
    """A network after training, and its weights before."""
    torch.manual_seed(0)
    width = digits.train.inputs()[0].numel()
    network = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(width, 12), torch.nn.GELU(), torch.nn.Linear(12, 10)
    )
    start = copy.deepcopy(network.state_dict())
    spec = training.TrainingSpec(epochs=8, batch_size=20, optimizer=training.SGD(0.1, momentum=0.9))
    training.train(network, digits, spec, progress=False)
    return network.double().eval(), start


@pytest.fixture(scope="session")
def found(trained: Any, digits: data.ImageData) -> Any:
    network, start = trained
    inputs = digits.train.inputs().double()
    return tangentlab.explore(
        network, inputs, labels=digits.train.labels, classes=digits.classes, checkpoints={"start": start}, k=12,
        title=f"Digits {HOSTILE[0]}", names=[f"{HOSTILE[i % 5]} {i}" for i in range(60)], progress=False,
    )  # fmt: skip


@pytest.fixture(scope="session")
def page(found: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return found.save(tmp_path_factory.mktemp("explorer") / "explorer.html", docs="https://example.org/docs")
