"""Neural anisotropy directions and Theorem 1."""

import numpy as np
import pytest
import torch
from torch import nn

from tangentlab import NTKOperator, TangentError, analysis, reference, tasks
from tests.analysis.problems import convnet, images, rows, smooth


def weight_gradient(model, x):
    """Mean over x of the gradient of the summed logits / sqrt(O) in the weights, flat."""
    jacobian = reference.jacobian(model, x, readout="pntk")
    return torch.cat([part.mean(0).flatten() for part in jacobian.values()])


def finite_differences(model, x, step=1e-4):
    """M, (P, d), by central differences of the gradient in the weights."""
    columns = []
    for i in range(x[0].numel()):
        shift = torch.zeros(x[0].numel(), dtype=x.dtype)
        shift[i] = step
        shift = shift.reshape(x.shape[1:])
        columns.append((weight_gradient(model, x + shift) - weight_gradient(model, x - shift)) / (2 * step))
    return torch.stack(columns, 1)


@pytest.mark.parametrize("averaged", [False, True])
@pytest.mark.parametrize("method", ["explicit", "matrix-free"])
def test_singular_vectors_of_the_mixed_derivative(averaged, method):
    model = convnet()
    x = images(5) if averaged else torch.zeros(1, 1, 6, 6, dtype=torch.float64)
    inputs = x if averaged else None
    found = analysis.anisotropy_directions(
        model, inputs, input_shape=(1, 6, 6), k=5, method=method, batch_size=2, dtype=torch.float64
    )
    mixed = finite_differences(model, x)
    _, values, right = torch.linalg.svd(mixed, full_matrices=False)
    torch.testing.assert_close(found.singular_values, values[:5], rtol=1e-5, atol=0)
    torch.testing.assert_close(found.alignments, values[:5].square(), rtol=1e-5, atol=0)
    assert found.directions.shape == (5, 1, 6, 6)
    cosines = (found.directions.reshape(5, -1) * right[:5]).sum(1).abs()
    torch.testing.assert_close(cosines, torch.ones(5, dtype=torch.float64), rtol=1e-6, atol=0)
    assert found.method == method
    assert tasks.nad(found.directions[0], n_train=4, n_test=4).train.inputs().shape == (4, 1, 6, 6)


def test_theorem_1_against_finite_differences():
    model, x = convnet(), images(4)
    u = torch.randn(3, 1, 6, 6, dtype=torch.float64)
    expected = (finite_differences(model, x) @ u.reshape(3, -1).T).square().sum(0)
    torch.testing.assert_close(analysis.linear_alignment(model, u, x), expected, rtol=1e-5, atol=0)


def test_theorem_1_is_the_alignment_of_a_linear_predictor_for_gaussian_inputs():
    """Both sides of Stein's lemma by quadrature, which is exact to rounding for a smooth network in two dimensions."""
    model = smooth(inputs=2, width=5)
    points, weights = np.polynomial.hermite_e.hermegauss(40)
    grid = torch.from_numpy(np.stack(np.meshgrid(points, points), -1).reshape(-1, 2))
    mass = torch.from_numpy(np.outer(weights, weights).reshape(-1)) / (2 * np.pi)
    directions = torch.tensor([[1.0, 0.0], [0.6, -0.8]], dtype=torch.float64)
    # The expectation is a weighted mean: its weights go into the functions, times N for the mean that is taken.
    functions = len(grid) * mass[:, None] * (grid @ directions.T)
    alpha = analysis.alignment(NTKOperator(model, grid), functions)
    mixed = sum(m * finite_differences(model, x[None], 1e-3) for m, x in zip(mass, grid, strict=True) if m > 1e-9)
    torch.testing.assert_close((mixed @ directions.T).square().sum(0), alpha, rtol=1e-4, atol=0)


def test_more_dimensions_than_weights_and_all_directions():
    class Few(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.tensor([0.7, -0.4], dtype=torch.float64))

        def forward(self, x):
            return (self.scale * x[:, :2]).sum(1, keepdim=True) + x.square().sum(1, keepdim=True)

    for method in ("explicit", "matrix-free"):
        found = analysis.anisotropy_directions(Few(), input_shape=(4,), method=method, dtype=torch.float64)
        expected = torch.tensor([1.0, 1, 0, 0], dtype=torch.float64)
        torch.testing.assert_close(found.singular_values, expected, rtol=1e-7, atol=1e-7)
        gram = found.directions @ found.directions.T
        torch.testing.assert_close(gram, torch.eye(4, dtype=torch.float64))


def test_refusals():
    model = smooth()
    with pytest.raises(TangentError, match="Neither inputs nor input_shape"):
        analysis.anisotropy_directions(model)
    with pytest.raises(TangentError, match="k=4 directions of 3"):
        analysis.anisotropy_directions(model, input_shape=(3,), k=4)
    with pytest.raises(TangentError, match="no method 'fast'"):
        analysis.anisotropy_directions(model, input_shape=(3,), method="fast")
    with pytest.raises(TangentError, match="function of targets"):
        analysis.anisotropy_directions(smooth(outputs=2), rows(2), readout="margin")
    with pytest.raises(TangentError, match="gives 2 functions"):
        analysis.anisotropy_directions(smooth(outputs=2), rows(2), readout="full")
    constant = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 1))
    with torch.no_grad():
        constant[0].bias.fill_(-100.0)  # a dead network
    with pytest.raises(TangentError, match="mixed derivative of inputs and weights is zero"):
        analysis.anisotropy_directions(constant, input_shape=(3,))
