"""The kernel as an operator."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import eigsh
from torch import nn

import tangentlab
from tangentlab import TangentError
from tests.kernels.test_options import MATRIX, close, images, network


@pytest.mark.parametrize("readout", ["full", "pntk", 1, MATRIX], ids=str)
@pytest.mark.parametrize("kept", [True, False])
def test_products(readout: object, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not kept:
        from tangentlab.kernels._memory import Budget

        monkeypatch.setattr(Budget, "resident", 2)
    model, x1, x2 = network(), images(5), images(7)
    kernel = tangentlab.reference.ntk(model, x1, x2, readout=readout)
    matrix = kernel.flatten(2).flatten(0, 1) if kernel.ndim == 4 else kernel
    operator = tangentlab.NTKOperator(model, x1, x2, readout=readout, batch_size=3)
    assert ("memory" in repr(operator)) is kept
    assert operator.shape == tuple(matrix.shape)
    v, w = torch.randn(matrix.shape[1], 4).double(), torch.randn(matrix.shape[0]).double()
    assert close(operator @ v, matrix @ v)
    assert close(operator @ v[:, 0], matrix @ v[:, 0])
    assert close(operator.rmatmul(w), matrix.T @ w)
    transposed = operator.T
    assert transposed.shape == tuple(matrix.T.shape)
    assert (transposed.dtype, transposed.device) == (operator.dtype, operator.device)
    assert close(transposed @ w, matrix.T @ w)
    assert close(transposed.rmatmul(v), matrix @ v)
    assert transposed.T is operator
    assert repr(transposed) == f"{operator!r}.T"
    assert np.allclose(transposed.to_scipy() @ w.numpy(), (matrix.T @ w).numpy())
    square = tangentlab.NTKOperator(model, x1, readout=readout, batch_size=2)
    assert square.T is square
    own = tangentlab.reference.ntk(model, x1, readout=readout)
    own = own.flatten(2).flatten(0, 1) if own.ndim == 4 else own
    assert close(square.diagonal(), own.diagonal())
    assert close(square @ torch.eye(len(own), dtype=torch.float64), own)


def test_scipy_finds_the_same_eigenvalues() -> None:
    model, x = network(), images(8)
    operator = tangentlab.NTKOperator(model, x).to_scipy()
    matrix = tangentlab.reference.ntk(model, x).reshape(24, 24)
    expected = torch.linalg.eigvalsh(matrix)[-3:].numpy()
    assert np.allclose(np.sort(eigsh(operator, 3, return_eigenvectors=False)), expected, rtol=1e-9)
    block = np.random.default_rng(0).normal(size=(24, 2))
    assert np.allclose(operator.matmat(block), matrix.numpy() @ block)
    assert np.allclose(operator.rmatvec(block[:, 0]), matrix.numpy().T @ block[:, 0])


def test_refusals() -> None:
    model, x = network(), images(4)
    operator = tangentlab.NTKOperator(model, x, images(3))
    with pytest.raises(tangentlab.TangentError, match=r"takes a tensor of shape \(9,\)"):
        operator @ torch.ones(12)
    with pytest.raises(tangentlab.TangentError, match="not square"):
        operator.diagonal()
    with pytest.raises(tangentlab.TangentError, match="no readout 'trace'"):
        tangentlab.NTKOperator(model, x, readout="trace")


@pytest.mark.parametrize("change", ["step", "buffer", "data", "replaced"])
def test_other_weights_are_refused(change: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()
    x = torch.randn(6, 3)
    operator = tangentlab.NTKOperator(model, x)
    kernel = operator @ torch.eye(6)
    assert torch.allclose(kernel, tangentlab.ntk(model, x, readout=0), rtol=1e-4)
    with torch.no_grad():
        if change == "step":
            model[0].weight += 1
        elif change == "buffer":
            model[1].running_mean += 1
        elif change == "data":
            model[0].weight.data = model[0].weight.data + 1
        else:
            model[0].weight = nn.Parameter(model[0].weight + 1)
    for use in (lambda: operator @ torch.ones(6), operator.diagonal, operator.rows, lambda: operator.block([0, 1])):
        with pytest.raises(TangentError, match="changed since the operator"):
            use()
