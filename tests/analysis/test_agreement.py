"""eNTK against pNTK."""

import pytest
import torch
from torch import nn

from tangentlab import TangentError, analysis, ntk
from tests.analysis.problems import images, rows, smooth


def kernels(n=6, m=4, outputs=3, width=12):
    model, x, test = smooth(outputs=outputs, width=width), rows(n), rows(m, seed=1)
    full, pseudo = (ntk(model, x, readout=r) for r in ("full", "pntk"))
    crosses = [ntk(model, test, x, readout=r) for r in ("full", "pntk")]
    return model, x, test, full, pseudo, crosses


def test_measures_by_their_definitions():
    *_, full, pseudo, _ = kernels()
    found = analysis.agreement(full, pseudo)
    flat, kron = full.reshape(18, 18), torch.kron(pseudo, torch.eye(3, dtype=torch.float64))
    assert found.frobenius_difference == pytest.approx(float((flat - kron).norm() / flat.norm()), rel=1e-12)
    assert found.frobenius.entk == pytest.approx(float(flat.norm()), rel=1e-12)
    assert found.frobenius.pntk == pytest.approx(float(kron.norm()), rel=1e-12)
    for kernel, name in ((flat, "entk"), (pseudo, "pntk")):
        values = torch.linalg.eigvalsh(kernel)
        assert getattr(found.lambda_max, name) == pytest.approx(float(values[-1]), rel=1e-9)
        assert getattr(found.lambda_min, name) == pytest.approx(float(values[0]), rel=1e-6)
        assert getattr(found.condition, name) == pytest.approx(float(values[-1] / values[0]), rel=1e-6)
    one, two = found.lambda_max.entk, found.lambda_max.pntk
    assert found.lambda_max.difference == pytest.approx(abs(one - two) / one)
    ratios = []
    for a in range(6):
        for b in range(6):
            block = full[a, :, b, :]
            ratios.append((block.abs().sum() - block.diagonal().abs().sum()) / block.diagonal().abs().sum())
    assert found.off_diagonal == pytest.approx(float(torch.stack(ratios).mean()), rel=1e-9)
    assert found.to_dict()["lambda_max_relative"] == found.lambda_max.difference


def test_a_separable_kernel_agrees_exactly():
    pseudo = kernels()[4]
    full = torch.einsum("nm,op->nomp", pseudo, torch.eye(3, dtype=torch.float64))
    found = analysis.agreement(full, pseudo)
    assert found.off_diagonal == 0
    assert found.frobenius_difference == 0
    assert found.lambda_max.difference < 1e-12
    assert found.condition.difference < 1e-6
    cross = torch.rand(4, 6, dtype=torch.float64)
    y = torch.eye(3, dtype=torch.float64)[torch.arange(6) % 3]
    both = analysis.regression_agreement(
        full, torch.einsum("nm,op->nomp", cross, torch.eye(3, dtype=torch.float64)), pseudo, cross, y
    )
    assert both.relative_difference < 1e-6


def test_they_agree_better_with_width():
    differences = []
    for width in (8, 4096):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 4))
        x = images(12).flatten(1).float()
        found = analysis.agreement(ntk(model, x), ntk(model, x, readout="pntk"))
        differences.append((found.off_diagonal, found.frobenius_difference))
    assert differences[1][0] < 0.5 * differences[0][0]
    assert differences[1][1] < 0.5 * differences[0][1]


def test_regression_with_prior_mean():
    model, x, test, full, pseudo, (full_cross, pseudo_cross) = kernels()
    y = torch.eye(3, dtype=torch.float64)[torch.arange(6) % 3]
    labels = torch.tensor([0, 1, 2, 0])
    with torch.no_grad():
        f0, f0_test = model(x), model(test)
    found = analysis.regression_agreement(
        full, full_cross, pseudo, pseudo_cross, y, f0=f0, f0_test=f0_test, labels=labels
    )
    flat = torch.linalg.solve(full.reshape(18, 18), (y - f0).reshape(18))
    entk = f0_test + (full_cross.reshape(12, 18) @ flat).reshape(4, 3)
    pntk = f0_test + pseudo_cross @ torch.linalg.solve(pseudo, y - f0)
    torch.testing.assert_close(found.entk, entk, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(found.pntk, pntk, rtol=1e-6, atol=1e-8)
    assert found.relative_difference == pytest.approx(float((pntk - entk).norm() / entk.norm()), rel=1e-6)
    assert found.entk_accuracy == float((entk.argmax(1) == labels).double().mean())
    assert found.accuracy_difference == found.pntk_accuracy - found.entk_accuracy
    assert analysis.regression_agreement(full, full_cross, pseudo, pseudo_cross, y).accuracy_difference is None


def test_refusals():
    *_, full, pseudo, (cross, pseudo_cross) = kernels()
    with pytest.raises(TangentError, match="do not go together"):
        analysis.agreement(full, pseudo[:3, :3])
    with pytest.raises(TangentError, match="do not fit"):
        analysis.regression_agreement(full, cross, pseudo, pseudo_cross, torch.zeros(6, 2))
    with pytest.raises(TangentError, match="Labels"):
        analysis.regression_agreement(full, cross, pseudo, pseudo_cross, torch.zeros(6, 3), labels=torch.zeros(3))
