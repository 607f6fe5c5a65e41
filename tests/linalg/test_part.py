"""A part of a kernel is a kernel."""

from pathlib import Path

import pytest
import torch
from torch import nn

from tangentlab import NTKOperator, TangentError, linalg, store


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> store.StoredKernel:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 30), nn.Tanh(), nn.Linear(30, 1)).double()
    path: Path = tmp_path_factory.mktemp("part") / "k.zarr"
    return store.compute(model, torch.randn(50, 4, dtype=torch.float64), path, readout=0, tile=16)


@pytest.mark.parametrize(("start", "stop"), [(0, 30), (7, 41), (49, 50), (0, 50)])
def test_of_a_store_and_of_a_matrix(kernel: store.StoredKernel, start: int, stop: int) -> None:
    dense = kernel.to_tensor()
    expected = dense[start:stop, start:stop]
    block = torch.randn(stop - start, 3, dtype=torch.float64)
    for part in (linalg.Part(kernel, start, stop), linalg.Part(dense, start, stop)):
        assert part.shape == expected.shape
        torch.testing.assert_close(part.read(slice(None), slice(0, 5)), expected[:, :5])
        torch.testing.assert_close(part.diagonal(), expected.diagonal())
        torch.testing.assert_close(part @ block, expected @ block)
        torch.testing.assert_close(linalg.eigh(part).values, linalg.eigh(expected).values)


def test_regression_of_training_points_predicts_the_others(kernel: store.StoredKernel) -> None:
    dense, y = kernel.to_tensor(), torch.randn(30, 2, dtype=torch.float64)
    cross = kernel.read(slice(30, 50), slice(0, 30))
    found = linalg.regress(linalg.Part(kernel, 0, 30), y, ridge=0.1).predict(cross)
    expected = dense[30:, :30] @ torch.linalg.solve(dense[:30, :30] + 0.1 * torch.eye(30, dtype=torch.float64), y)
    torch.testing.assert_close(found, expected)
    assert "rows 0 to 30 of" in repr(linalg.Part(kernel, 0, 30))


def test_refusals(kernel: store.StoredKernel) -> None:
    for start, stop in ((-1, 3), (3, 3), (0, 51)):
        with pytest.raises(TangentError, match="no rows"):
            linalg.Part(kernel, start, stop)
    with pytest.raises(TangentError, match="cannot be read"):
        linalg.Part(NTKOperator(nn.Linear(2, 1), torch.ones(3, 2)), 0, 2)
