"""The parts of the attribution benchmark that do not need MNIST."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks.attribution import agreement, removal, streaming, table
from benchmarks.attribution.peers import problem
from benchmarks.attribution.setup import build
from benchmarks.measure import ROOT
from tangentlab import data, reference
from tangentlab.attribution import LDS


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


def score(mean: float) -> LDS:
    return LDS(torch.tensor([mean, mean]), mean, (mean - 0.1, mean + 0.1), torch.linspace(mean - 0.1, mean + 0.1, 50))


def test_rows_compare_with_the_better_peer() -> None:
    found = {("traker, trak", 1): score(0.2), ("dattri, trak", 1): score(0.3), ("trak", 1): score(0.25)}
    rows = table.summary(found).set_index("method")
    assert rows.loc["trak", "gap"] == pytest.approx(-0.05)
    assert rows.loc["trak", "gap_high"] == pytest.approx(-0.05)
    assert pd.isna(rows.loc["traker, trak", "gap"])
    assert table.per_test(found)["trak; 1"].tolist() == [0.25, 0.25]


def test_the_published_tables_have_the_recorded_numbers() -> None:
    rows = pd.read_csv(ROOT / "benchmarks" / "attribution-lds.csv")
    assert len(rows) == len(table.PUBLISHED) * len(table.COUNTS)
    page = (ROOT / "docs" / "attribution.md").read_text()
    for values in ("lds", "gap"):
        assert table.markdown(rows, values) in page


def test_moved_digits() -> None:
    images = torch.zeros(3, 1, 28, 28, dtype=torch.uint8)
    images[:, 0, 14, 14] = torch.tensor([50, 100, 200], dtype=torch.uint8)
    digits = data.Examples(images, torch.tensor([4, 5, 6]), data.Normalization((0.0,), (1.0,)))
    moved = streaming.Moved(digits, 50)
    assert len(moved) == 50
    batch = moved.__getitems__([4, 1, 49])
    assert [int(label) for _, label in batch] == [5, 5, 5]
    for (image, _), index in zip(batch, (4, 1, 49), strict=True):
        down, right = streaming.PLACES[index // 3]
        assert image.nonzero().tolist() == [[0, 14 + down, 14 + right]]
        assert torch.equal(moved[index][0], image)
    with pytest.raises(SystemExit):
        streaming.Moved(digits, 76)
