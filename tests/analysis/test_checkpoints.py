"""Two checkpoints compared in one call and on the command line; statistics of BatchNorm."""

import json
from pathlib import Path

import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from tangentlab import TangentError, analysis, linalg, linearize, models, ntk, plot
from tangentlab._cli.app import app
from tangentlab.linearized import estimate_statistics, linearization_error

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, :3].argmax(1)


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).double()


def test_comparison_equals_its_parts(tmp_path: Path) -> None:
    a, b = network(0), network(1)
    torch.save(b.state_dict(), tmp_path / "b.pt")
    found = analysis.compare_checkpoints(network(2), a.state_dict(), tmp_path / "b.pt", X, targets=Y, k=4)
    one, two = (ntk(model, X, readout="pntk") for model in (a, b))
    assert found.distance == pytest.approx(analysis.kernel_distance(one, two))
    assert found.rotation.overlap == pytest.approx(analysis.rotation(one, two, 4).overlap)
    targets = nn.functional.one_hot(Y).double()
    for name, kernel in (("a", one), ("b", two)):
        assert found.alignments is not None
        assert found.alignments[name].alignment == pytest.approx(float(analysis.alignment(kernel, targets).sum()))
    assert found.energy is not None
    assert torch.allclose(found.energy[1], analysis.energy_concentration(two, targets, 4).cpu())
    assert found.effective_ranks[0] == pytest.approx(linalg.effective_rank(linalg.singular_values(one)))
    lin = linearize(a)
    lin.load_state_dict(b.state_dict())
    assert found.linearization_error == pytest.approx(linearization_error(lin, X).overall)
    distance = torch.cat([(q - p).flatten() for p, q in zip(a.parameters(), b.parameters(), strict=True)]).norm()
    assert found.weight_distance == pytest.approx(float(distance))
    ax = plot.spectrum(found.spectra)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert len(ax.lines) == 2
    assert "kernel distance" in str(found)
    assert len(found.to_pandas()) == 2


def test_without_targets_and_refusals(tmp_path: Path) -> None:
    found = analysis.compare_checkpoints(network(0), network(0), network(0), X)
    assert found.alignments is None
    assert found.distance == pytest.approx(0, abs=1e-12)
    with pytest.raises(TangentError, match="second checkpoint does not fit"):
        analysis.compare_checkpoints(network(0), network(0), {"weight": torch.ones(2)}, X)
    with pytest.raises(TangentError, match="cannot be read"):
        analysis.compare_checkpoints(network(0), tmp_path / "none.pt", network(0), X)
    with pytest.raises(TangentError, match="no spectrum"):
        plot.spectrum({})


def test_command(tmp_path: Path) -> None:
    shape = {"input_shape": (1, 8, 8), "outputs": 10}
    for seed, name in ((0, "a.pt"), (1, "b.pt")):
        torch.save(models.build("mlp", seed=seed, **shape).state_dict(), tmp_path / name)
    call = ["compare-checkpoints", str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), "--model", "mlp", "--data", "digits"]
    call += ["--n-train", "30"]
    done = CliRunner().invoke(app, [*call, "--out", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["kernel_distance"] > 0
    assert [row["checkpoint"] for row in result["checkpoints"]] == ["a.pt", "b.pt"]
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"checkpoints.csv", "spectra.png"}
    (tmp_path / "b.pt").write_bytes(b"damaged")
    assert CliRunner().invoke(app, call).exit_code != 0


def test_statistics_of_an_untrained_network() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).double()
    lin = linearize(model)
    assert lin.untouched_statistics == ["1"]
    assert "untouched statistics" in repr(lin)
    ready = estimate_statistics(model, X)
    assert bool((model[1].running_mean == 0).all())
    assert torch.allclose(ready[1].running_mean, model[0](X).mean(0))
    assert torch.allclose(ready[1].running_var, model[0](X).var(0))
    assert ready[1].momentum == model[1].momentum
    assert ready.training
    assert linearize(ready).untouched_statistics == []
    parts = estimate_statistics(model, [X[:6], X[6:]])
    assert torch.allclose(parts[1].running_mean, ready[1].running_mean)
    with pytest.raises(TangentError, match="no BatchNorm"):
        estimate_statistics(network(0), X)
    with pytest.raises(TangentError, match="no samples"):
        estimate_statistics(model, [])
