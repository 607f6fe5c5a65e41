"""Energy concentration, rotation, and both along training."""

import math

import pytest
import torch

from tangentlab import TangentError, analysis, linalg, ntk, training
from tests.analysis.problems import matrix, rows, smooth


def test_energy_is_a_ratio_of_norms():
    kernel = matrix(smooth(), rows(15))
    vectors = torch.linalg.eigh(kernel).eigenvectors.flip(1)
    y = 3 * vectors[:, 0] + 4 * vectors[:, 9]
    assert float(analysis.energy_concentration(kernel, y, k=2)) == pytest.approx(3 / 5, rel=1e-9)
    assert float(analysis.energy_concentration(kernel, y, k=15)) == pytest.approx(1, rel=1e-9)
    spectrum = linalg.eigh(kernel, 6)
    both = analysis.energy_concentration(spectrum, torch.stack([y, vectors[:, 3]], 1), k=5)
    torch.testing.assert_close(both, torch.tensor([0.6, 1.0], dtype=torch.float64))
    with pytest.raises(TangentError, match="holds 6 eigenpairs"):
        analysis.energy_concentration(spectrum, y, k=7)
    with pytest.raises(TangentError, match="zero everywhere"):
        analysis.energy_concentration(kernel, torch.zeros(15), k=2)


def test_rotation_of_known_angles():
    basis = torch.linalg.qr(torch.randn(12, 12, dtype=torch.float64)).Q
    angles = torch.tensor([1e-9, 0.3, 1.2, math.pi / 2], dtype=torch.float64)
    turned = basis.clone()
    for i, angle in enumerate(angles):
        a, b = basis[:, i], basis[:, 8 + i]
        turned[:, i] = angle.cos() * a + angle.sin() * b
        turned[:, 8 + i] = angle.cos() * b - angle.sin() * a
    values = torch.tensor([9.0, 8, 7, 6, 1, 1, 1, 1, 1, 1, 1, 1], dtype=torch.float64)
    one, two = (b @ values.diag() @ b.T for b in (basis, turned))
    found = analysis.rotation(one, two, k=4)
    torch.testing.assert_close(found.angles[1:], angles[1:], rtol=1e-7, atol=0)
    assert float(found.angles[0]) < 1e-7
    assert found.overlap == pytest.approx(float(angles.cos().square().mean()), rel=1e-9)
    assert analysis.rotation(one, 5 * one, k=4).overlap == pytest.approx(1)
    assert "2 turned by more than 45 degrees" in str(found)
    with pytest.raises(TangentError, match="same samples"):
        analysis.rotation(one, torch.eye(5), k=4)


def test_kernel_distance():
    one, two = matrix(smooth(), rows(9)), matrix(smooth(seed=1), rows(9))
    cosine = float((one * two).sum() / (one.norm() * two.norm()))
    assert analysis.kernel_distance(one, two) == pytest.approx(1 - cosine, rel=1e-9)
    assert analysis.kernel_distance(one, 3 * one) == pytest.approx(0, abs=1e-12)
    with pytest.raises(TangentError, match="entry by entry"):
        analysis.kernel_distance(one, torch.eye(4))


def test_along_training_and_resumed(tmp_path):
    x = rows(40).float()
    y = torch.sign(x[:, :1])
    functions = torch.cat([y, torch.sign(x[:, 1:2] * x[:, 2:3])], 1)
    callbacks = [
        analysis.spectrum_callback(x, 3, epochs=(0, 2, 4)),
        analysis.alignment_callback(x, functions, epochs=(0, -1)),
    ]
    spec = training.TrainingSpec(
        epochs=4, batch_size=8, loss=training.SigmoidCrossEntropy(), optimizer=training.SGD(0.5, momentum=0.9)
    )
    model = smooth().float()
    start = matrix(smooth().float(), x)
    result = training.train(model, (x, y), spec, callbacks=callbacks, folder=tmp_path, progress=False)
    again = training.train(smooth().float(), (x, y), spec, callbacks=callbacks, folder=tmp_path, progress=False)
    table = analysis.along_training(again, y)
    assert table["epoch"].tolist() == [0, 2, 4]
    assert table["overlap"][0] == pytest.approx(1, abs=1e-6)
    assert table["overlap"][2] < 0.999
    assert table["energy"][2] > table["energy"][0]
    for epoch, kernel in ((0, start), (2, ntk(model, x, readout="pntk"))):
        expected = float(analysis.energy_concentration(kernel.double(), y[:, 0], 3))
        assert table["energy"][epoch] == pytest.approx(expected, rel=1e-4)
    before, after = result.values["alignment"][0], result.values["alignment"][4]
    torch.testing.assert_close(before, analysis.alignment(start.double(), functions), rtol=1e-4, atol=0)
    assert after[0] / before[0] > after[1] / before[1]  # the target's alignment grows most
    with pytest.raises(TangentError, match="no values of a callback 'other'"):
        analysis.along_training(again, y, name="other")
