"""Alignment, RKHS norm, Lemma 1 and the generalization bound."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tangentlab import NTKOperator, TangentError, analysis
from tangentlab.kernels._products import Products
from tests.analysis.problems import convnet, images, jacobian, matrix, rows, smooth


def test_alignment_by_kernel_is_alignment_by_averaged_jacobian():
    model, x = convnet(), images(7)
    functions = torch.randn(7, 2, 5, dtype=torch.float64)
    by_definition = torch.stack(
        [(jacobian(model, x).T @ f.reshape(-1) / 7).square().sum() for f in functions.movedim(2, 0)]
    )
    by_kernel = analysis.alignment(matrix(model, x).reshape(7, 2, 7, 2), functions)
    by_jacobian = analysis.alignment(NTKOperator(model, x), functions)
    torch.testing.assert_close(by_kernel, by_definition, rtol=1e-10, atol=0)
    torch.testing.assert_close(by_jacobian, by_definition, rtol=1e-10, atol=0)
    flat = functions.reshape(14, 5)
    torch.testing.assert_close(analysis.alignment(NTKOperator(model, x), flat), by_definition, rtol=1e-10, atol=0)
    torch.testing.assert_close(analysis.alignment(NTKOperator(model, x), flat[:, 1]), by_definition[1])


@pytest.mark.parametrize("kept", [True, False])
def test_columns_and_samples_in_pieces_give_the_same(kept, monkeypatch):
    model, x = convnet(), images(9)
    functions = torch.randn(18, 6, dtype=torch.float64)
    expected = analysis.alignment(matrix(model, x).reshape(9, 2, 9, 2), functions)
    monkeypatch.setattr(Products, "_columns", 4)
    monkeypatch.setattr(Products, "_share", 600)  # samples three or four at a time
    if not kept:
        from tangentlab.kernels._memory import Budget

        monkeypatch.setattr(Budget, "resident", 2)
    operator = NTKOperator(model, x, batch_size=4)
    assert ("memory" in repr(operator)) is kept
    torch.testing.assert_close(analysis.alignment(operator, functions), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("count", [1, 200])
def test_each_layer_takes_the_cheaper_way(count, monkeypatch):
    """The norm of the averaged Jacobian for few functions; tiles of a dense layer's kernel for many."""
    model, x = smooth(inputs=30, outputs=2, width=40), rows(60, 30)
    functions = torch.randn(120, count, dtype=torch.float64)
    operator = NTKOperator(model, x)
    assert len(operator._products._cheaper_by_tiles(functions.reshape(60, 2, count))) == (2 if count == 200 else 0)
    expected = analysis.alignment(matrix(model, x).reshape(60, 2, 60, 2), functions)
    torch.testing.assert_close(analysis.alignment(operator, functions), expected, rtol=1e-10, atol=0)
    monkeypatch.setattr(Products, "_share", 5000)  # panels of five samples
    torch.testing.assert_close(analysis.alignment(operator, functions), expected, rtol=1e-10, atol=0)


def test_eigenfunctions_have_their_eigenvalue_as_alignment():
    model, x = smooth(), rows(20)
    kernel = matrix(model, x)
    values, vectors = torch.linalg.eigh(kernel)
    functions = math.sqrt(20) * vectors  # E[phi^2] = 1
    operator = NTKOperator(model, x)
    for source in (kernel, operator):
        found = analysis.alignment(source, functions)
        torch.testing.assert_close(found, values / 20, rtol=1e-8, atol=1e-12 * float(values[-1]))
    norms = analysis.rkhs_norm(kernel, functions[:, -3:])
    torch.testing.assert_close(norms, 20 / values[-3:], rtol=1e-8, atol=0)
    torch.testing.assert_close(analysis.lemma1_bound(kernel, functions[:, -3:]), norms, rtol=1e-8, atol=0)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(2, 12), width=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_lemma_1_bounds_the_norm_from_below(n, width, seed):
    generator = torch.Generator().manual_seed(seed)
    factors = torch.randn(n, n + width, generator=generator, dtype=torch.float64)
    functions = torch.randn(n, 4, generator=generator, dtype=torch.float64)
    kernel = factors @ factors.T
    norm, bound = analysis.rkhs_norm(kernel, functions), analysis.lemma1_bound(kernel, functions)
    assert (norm >= bound * (1 - 1e-9)).all()
    expected = (functions * torch.linalg.solve(kernel, functions)).sum(0)
    torch.testing.assert_close(norm, expected, rtol=1e-6, atol=0)


def test_a_function_outside_a_singular_kernel_has_no_norm():
    factors = torch.randn(6, 2, dtype=torch.float64)
    kernel, inside = factors @ factors.T, factors @ torch.randn(2, dtype=torch.float64)
    assert torch.isfinite(analysis.rkhs_norm(kernel, inside))
    outside = inside + torch.linalg.svd(factors).U[:, -1]
    assert analysis.rkhs_norm(kernel, outside) == math.inf
    ridge = analysis.rkhs_norm(kernel, outside, ridge=0.1)
    expected = outside @ torch.linalg.solve(kernel + 0.1 * torch.eye(6, dtype=torch.float64), outside)
    torch.testing.assert_close(ridge, expected, rtol=1e-8, atol=0)


def test_generalization_bound():
    model, x = smooth(), rows(8)
    kernel, y = matrix(model, x), rows(8, 1)[:, 0]
    expected = (y @ torch.linalg.solve(kernel, y) * kernel.trace() / 8 / 8).sqrt()
    torch.testing.assert_close(analysis.generalization_bound(kernel, y), expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(analysis.generalization_bound(7 * kernel, y), expected, rtol=1e-6, atol=0)
    more = analysis.generalization_bound(kernel, y, samples=32)
    torch.testing.assert_close(more, expected / 2, rtol=1e-6, atol=0)


def test_functions_that_do_not_fit_are_refused():
    kernel = matrix(smooth(), rows(4))
    for functions in (torch.ones(5), torch.ones(4, 0), torch.ones(2, 3, 1), torch.full((4,), math.nan)):
        with pytest.raises(TangentError, match=r"[Ff]unctions"):
            analysis.alignment(kernel, functions)
    with pytest.raises(TangentError, match="not square"):
        NTKOperator(smooth(), rows(4), rows(3)).quadratic_form(torch.ones(4))
