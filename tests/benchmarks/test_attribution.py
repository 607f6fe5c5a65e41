"""The parts of the attribution benchmark that do not need MNIST."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks.attribution import agreement, removal, table
from benchmarks.attribution.peers import problem
from benchmarks.attribution.setup import build
from tangentlab import reference


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return torch.randn(6, 1, 28, 28, generator=random), torch.randint(10, (6,), generator=random)


def test_gradients_from_factors_are_those_of_plain_differentiation(digits: tuple[torch.Tensor, torch.Tensor]) -> None:
    model = build(0)
    found = agreement.gradients(model, *digits)
    parts = reference.jacobian(model, digits[0], readout="margin", targets=digits[1])
    expected = torch.cat([part.flatten(1) for part in parts.values()], 1)
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max()


def test_peers_get_the_same_network(digits: tuple[torch.Tensor, torch.Tensor], tmp_path: Path) -> None:
    models = [build(0), build(1)]
    problem.write(tmp_path / "problem.npz", digits, digits, models)
    read = problem.Problem(tmp_path / "problem.npz")
    assert len(read.states) == 2
    for model, state in zip(models, read.states, strict=True):
        assert torch.equal(problem.network(state)(read.train[0]), model(digits[0]))


def test_the_summary_compares_with_the_most_helpful() -> None:
    falls = {"most helpful": [2.0, 3.0, 4.0], "random": [0.0, 0.5, 0.25], "nearest by pixel": [1.0, 1.0, 2.5]}
    rows = [{"digit": i, "removed": kind, "fall": fall} for kind, part in falls.items() for i, fall in enumerate(part)]
    found = removal.summary(pd.DataFrame(rows), 200).set_index("removed")
    assert found.loc["most helpful", "fall"] == pytest.approx(3)
    assert found.loc["random", "difference"] == pytest.approx(2.75)
    assert found.loc["random", "difference_low"] > 1.9


def test_the_published_table() -> None:
    rows = [{"method": "trak", "checkpoints": n, "lds": 0.1 * n, "low": 0.0, "high": 1.0} for n in table.COUNTS]
    assert table.markdown(pd.DataFrame(rows)).splitlines()[-1].startswith("| trak | 0.100 [0.000, 1.000] | 0.500")
