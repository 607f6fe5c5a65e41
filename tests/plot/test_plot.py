"""What the pictures show is what they were given."""

from collections.abc import Iterator
from types import SimpleNamespace

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch

from tangentlab import TangentError, plot


@pytest.fixture(autouse=True)
def close_figures() -> Iterator[None]:
    yield
    plt.close("all")


def gram(n: int = 12, features: int = 5) -> torch.Tensor:
    x = torch.randn(n, features, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return x @ x.T


def test_kernel_sorted_by_class() -> None:
    kernel, labels = gram(), torch.tensor([2, 0, 1] * 4)
    ax = plot.kernel(kernel, labels, cosine=False)
    order = labels.argsort(stable=True)
    assert np.array_equal(ax.images[0].get_array(), kernel[order][:, order])
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2"]
    assert list(ax.get_xticks()) == [1.5, 5.5, 9.5]


def test_kernel_as_cosines_in_given_axes() -> None:
    _, ax = plt.subplots()
    assert plot.kernel(gram(), ax=ax, title="cosines") is ax
    shown = ax.images[0].get_array()
    assert np.allclose(shown.diagonal(), 1)
    assert np.abs(shown).max() <= 1 + 1e-12
    assert ax.get_title() == "cosines"


def test_kernel_of_several_outputs() -> None:
    full = gram(8).reshape(4, 2, 4, 2)
    ax = plot.kernel(full, labels=[1, 0, 1, 0], cosine=False)
    order = [2, 3, 6, 7, 0, 1, 4, 5]
    assert np.array_equal(ax.images[0].get_array(), gram(8)[order][:, order])


def test_spectrum_of_kernel_values_and_decomposition() -> None:
    kernel = gram()
    values = torch.linalg.eigvalsh(kernel).flip(0)
    decomposed = SimpleNamespace(values=values[:3], vectors=torch.eye(12)[:, :3])
    ax = plot.spectrum(kernel, label="kernel")
    plot.spectrum(values, ax=ax, normalize=False)
    plot.spectrum(decomposed, ax=ax)
    first, second, third = (line.get_ydata() for line in ax.lines)
    assert np.allclose(first[:5], values[:5] / values[0])
    assert np.allclose(second[:5], values[:5])
    assert np.allclose(third, values[:3] / values[0])
    assert ax.get_legend() is not None


def test_history_of_runs() -> None:
    tables = {name: pd.DataFrame({"epoch": [0, 1], "test_accuracy": [0.1, a]}) for name, a in (("a", 0.5), ("b", 0.7))}
    comparison = SimpleNamespace(runs={name: SimpleNamespace(history=table) for name, table in tables.items()})
    ax = plot.history(comparison, "test_accuracy")
    assert [line.get_ydata()[-1] for line in ax.lines] == [0.5, 0.7]
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert ax.get_yscale() == "linear"
    single = plot.history(tables["a"].rename(columns={"test_accuracy": "train_loss"}))
    assert single.get_yscale() == "log"
    assert single.get_legend() is None


def test_directions_and_their_frequencies() -> None:
    wave = torch.cos(2 * torch.pi * 2 * torch.arange(8) / 8).expand(8, 8)
    axes = plot.directions(SimpleNamespace(directions=wave[None, None], alignments=torch.tensor([0.25])))
    assert axes.shape == (2, 1)
    assert np.allclose(axes[0, 0].images[0].get_array(), wave)
    strongest = np.unravel_index(axes[1, 0].images[0].get_array().argmax(), (8, 8))
    assert strongest[0] == 4
    assert abs(strongest[1] - 4) == 2
    assert axes[0, 0].get_title() == "1: 0.25"
    assert plot.directions(wave[None], fourier=False).shape == (1, 1)


def test_refusals() -> None:
    with pytest.raises(TangentError, match="not square"):
        plot.kernel(torch.ones(2, 3))
    with pytest.raises(TangentError, match="not positive"):
        plot.kernel(torch.zeros(2, 2))
    with pytest.raises(TangentError, match="labels do not fit"):
        plot.kernel(gram(), labels=[0, 1, 2, 3, 4])
    with pytest.raises(TangentError, match="no positive eigenvalue"):
        plot.spectrum(torch.zeros(3))
    with pytest.raises(TangentError, match="no column 'test_loss'"):
        plot.history(pd.DataFrame({"epoch": [0], "train_loss": [1.0]}), "test_loss")
    with pytest.raises(TangentError, match="not images"):
        plot.directions(torch.ones(5))


def test_predictions_with_their_uncertainty() -> None:
    mean, std, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.full((3, 1), 0.25), torch.tensor([[0.4], [1.1], [3.0]])
    ax = plot.predictions(mean, std, y, title="three")
    assert ax.get_title() == "three"
    assert "67% inside" in ax.get_legend().get_texts()[1].get_text()
    drawn = ax.lines[1].get_xydata()
    assert np.allclose(drawn, torch.cat([y, mean], 1))
    for wrong in ((mean, std, y[:2]), (mean[:0], std[:0], y[:0])):
        with pytest.raises(TangentError, match="do not fit"):
            plot.predictions(*wrong)


def test_chosen_samples_in_their_pool() -> None:
    from tangentlab.kernels import SketchedKernel

    kernel = gram(12)
    ax = plot.chosen(kernel, [3, 7])
    pool, picked = (line.get_xydata() for line in ax.lines)
    assert pool.shape == (12, 2)
    assert np.allclose(picked, pool[[3, 7]])
    values = np.linalg.eigvalsh(kernel)[::-1]
    assert np.allclose(np.square(pool).sum(0), values[:2])  # coordinates are eigenvectors times the root of the values
    assert [text.get_text() for text in ax.texts] == ["1", "2"]
    features = torch.randn(24, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert plot.chosen(SketchedKernel(features, 2, 0), [11]).lines[0].get_xydata().shape == (12, 2)
    for rows in ([12], []):
        with pytest.raises(TangentError, match="cannot be drawn"):
            plot.chosen(kernel, rows)


def test_forecast_has_a_band_where_its_error_is_known() -> None:
    table = pd.DataFrame({"step": [0, 1, 2], "train_loss": [3.0, 2.0, 1.0], "test_loss": [3.0, 2.5, 2.0]})
    assert not plot.forecast(table).collections
    assert len(plot.forecast(table.assign(test_loss_error=0.1)).collections) == 1
