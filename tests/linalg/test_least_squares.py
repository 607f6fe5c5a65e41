"""The minimum-norm solution by LSQR on J, against LAPACK and against extended precision."""

from contextlib import contextmanager

import numpy as np
import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from tangentlab import TangentError, linalg
from tangentlab.linalg import _least_squares

EPS = np.finfo(float).eps


def jacobian(values, columns: int, seed: int) -> np.ndarray:
    """Draw J with these singular values."""
    random = np.random.default_rng(seed)
    n = len(values)
    left = np.linalg.qr(random.standard_normal((n, n)))[0]
    right = np.linalg.qr(random.standard_normal((columns, n)))[0]
    return (left * values) @ right.T


def extended(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve J u = b for the least norm by QR of J^T in 80-bit precision: orthogonalized three times, then by R^T."""
    q = matrix.T.astype(np.longdouble)
    n = len(right)
    r = np.zeros((n, n), np.longdouble)
    for j in range(n):
        for _ in range(3):
            part = q[:, :j].T @ q[:, j]
            q[:, j] -= q[:, :j] @ part
            r[:j, j] += part
        r[j, j] = np.sqrt(q[:, j] @ q[:, j])
        q[:, j] /= r[j, j]
    y = np.zeros(n, np.longdouble)
    for j in range(n):
        y[j] = (right[j] - r[:j, j] @ y[:j]) / r[j, j]
    return (q @ y).astype(float)


def error(found, expected: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected))


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
@pytest.mark.parametrize("condition", [1e2, 1e6, 1e8, 1e10, 1e12])
@pytest.mark.parametrize("columns", [40, 90])
@pytest.mark.parametrize("smooth", [False, True])
def test_as_accurate_as_lapack(condition: float, columns: int, smooth: bool) -> None:
    """Within ten times LAPACK's own error in extended precision, which grows with the condition number of J."""
    matrix = jacobian(np.geomspace(1, 1 / condition, 40), columns, seed=columns)
    drawn = np.random.default_rng(1).standard_normal(columns)
    right = matrix @ drawn if smooth else drawn[:40]
    expected = extended(matrix, right)
    lapack = scipy.linalg.lstsq(matrix, right, cond=0.0, lapack_driver="gelsd")[0]
    found = linalg.least_squares(torch.from_numpy(matrix), torch.from_numpy(right))
    assert error(found.solution, expected) < 10 * max(error(lapack, expected), 10 * EPS)
    assert found.floor == 0
    assert found.norm == pytest.approx(float(np.linalg.norm(expected)), rel=1e-3)


def test_the_kernel_alone_loses_what_the_jacobian_has() -> None:
    """At a condition number of 1e10 the kernel, of 1e20, has no correct digit."""
    matrix = jacobian(np.geomspace(1, 1e-10, 40), 60, seed=0)
    right = matrix @ np.random.default_rng(1).standard_normal(60)
    expected = scipy.linalg.lstsq(matrix, right, cond=0.0, lapack_driver="gelsd")[0]
    kernel = linalg.regress(matrix @ matrix.T, right, method="eigen")
    assert error(matrix.T @ kernel.coefficients[:, 0].numpy(), expected) > 0.1
    assert error(linalg.least_squares(matrix, right).solution, expected) < 1e-5


@given(
    st.integers(1, 30),
    st.integers(0, 20),
    st.floats(0, 11),
    st.integers(-140, 150),  # the coefficients of K = J J^T, about 10^(-2 power), must be in the range of float64
    st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_any_shape_and_scale(rows: int, more: int, decades: float, power: int, seed: int) -> None:
    matrix = jacobian(np.geomspace(1, 10**-decades, rows), rows + more, seed) * 10.0**power
    right = np.random.default_rng(seed).standard_normal(rows)
    expected = scipy.linalg.lstsq(matrix * 10.0**-power, right, cond=0.0, lapack_driver="gelsd")[0]
    found = linalg.least_squares(matrix, right)
    assert error(found.solution.numpy() * 10.0**power, expected) < 1e3 * EPS * 10**decades
    assert float(np.linalg.norm(matrix @ found.solution.numpy() - right)) < 1e3 * EPS * 10**decades * np.linalg.norm(
        right
    )


@pytest.mark.parametrize("cutoff", [1e-3, 1e-7, 1e-13])
def test_the_cutoff_of_lapack(cutoff: float) -> None:
    """Singular values below cutoff times the largest count as zero, and those of zero itself do."""
    values = np.concatenate([np.geomspace(1, 30 * cutoff, 30), cutoff / np.array([30.0, 100.0, 1e3]), np.zeros(4)])
    matrix = jacobian(values, 50, seed=2)
    right = np.random.default_rng(3).standard_normal(len(values))
    expected, _, rank, _ = scipy.linalg.lstsq(matrix, right, cond=cutoff, lapack_driver="gelsd")
    found = linalg.least_squares(matrix, right, cutoff=cutoff)
    assert found.rank == rank == 30
    assert found.cutoff == pytest.approx(cutoff, rel=1e-6)
    assert error(found.solution, expected) < 1e-3
    residual = np.linalg.norm(matrix @ expected - right) / np.linalg.norm(right)
    assert found.residual == pytest.approx(residual, rel=1e-6)


def test_a_cutoff_below_all_singular_values_changes_nothing() -> None:
    matrix = jacobian(np.geomspace(1, 1e-5, 20), 25, seed=2)
    right = np.ones(20)
    plain, cut = linalg.least_squares(matrix, right), linalg.least_squares(matrix, right, cutoff=1e-7)
    assert cut.rank == 20
    assert error(cut.solution, plain.solution.numpy()) < 1e-9


@pytest.mark.parametrize("ridge", [1e-14, 1e-6, 1.0])
def test_the_ridge(ridge: float) -> None:
    """A ridge of 1e-14 is at the kernel's rounding level, and still exact."""
    values = np.geomspace(1, 1e-9, 30)
    matrix = jacobian(values, 50, seed=4)
    right = np.random.default_rng(5).standard_normal(30)
    left, _, back = np.linalg.svd(matrix, full_matrices=False)
    expected = back.T @ (values / (values**2 + ridge) * (left.T @ right))
    found = linalg.least_squares(matrix, right, ridge=ridge)
    assert error(found.solution, expected) < 1e-6
    assert error(matrix.T @ found.coefficients.numpy(), found.solution.numpy()) < 1e-6


def test_operators_several_right_sides_and_a_given_kernel() -> None:
    matrix = jacobian(np.geomspace(1, 1e-4, 12), 20, seed=6)
    right = np.random.default_rng(7).standard_normal((12, 3))
    found = linalg.least_squares(matrix, right)
    assert found.solution.shape == (20, 3)
    assert found.coefficients.shape == (12, 3)
    np.testing.assert_allclose(found.solution, scipy.linalg.lstsq(matrix, right)[0], rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(matrix.T @ found.coefficients.numpy(), found.solution, rtol=1e-8, atol=1e-8)
    operator = aslinearoperator(matrix)
    given = linalg.least_squares(operator, right, kernel=matrix @ matrix.T)
    np.testing.assert_allclose(given.solution, found.solution, rtol=1e-8, atol=1e-8)
    with pytest.raises(TangentError, match="kernel="):
        linalg.least_squares(operator, right)


def test_a_kernel_in_float32_still_preconditions() -> None:
    matrix = jacobian(np.geomspace(1, 1e-5, 30), 40, seed=8)
    right = np.random.default_rng(9).standard_normal(30)
    found = linalg.least_squares(matrix, right, kernel=(matrix @ matrix.T).astype(np.float32))
    expected = scipy.linalg.lstsq(matrix, right)[0]
    assert error(found.solution, expected) < 1e-9


def test_equal_rows_with_different_targets() -> None:
    """No solution exists; the least squares give the mean of both targets, with the floor and with a cutoff."""
    matrix = jacobian(np.geomspace(1, 0.1, 10), 20, seed=10)
    matrix[1] = matrix[0]
    right = np.arange(10.0)
    expected = scipy.linalg.lstsq(matrix, right, cond=1e-12, lapack_driver="gelsd")[0]
    found, cut = linalg.least_squares(matrix, right), linalg.least_squares(matrix, right, cutoff=1e-12)
    for each in (found, cut):
        assert error(each.solution, expected) < 1e-9
        assert (matrix @ each.solution.numpy())[:2] == pytest.approx([0.5, 0.5])
    assert (found.rank, cut.rank) == (None, 9)
    assert found.floor > 0
    assert cut.floor == 0


@given(
    st.integers(2, 30),
    st.integers(-15, 15),
    st.floats(0, 6),
    st.integers(0, 8),
    st.integers(-100, 100),
    st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_least_squares_without_a_solution(
    rows: int, more: int, decades: float, null: int, power: int, seed: int
) -> None:
    """More equations than unknowns, and singular Jacobians: the solution of LAPACK with a cutoff in the gap."""
    columns = max(1, rows + more)
    rank = max(1, min(rows, columns) - null)
    random = np.random.default_rng(seed)
    left = np.linalg.qr(random.standard_normal((rows, rows)))[0][:, :rank]
    back = np.linalg.qr(random.standard_normal((columns, columns)))[0][:, :rank]
    matrix, right = (left * np.geomspace(1, 10**-decades, rank)) @ back.T, random.standard_normal(rows)
    expected = scipy.linalg.lstsq(matrix, right, cond=1e-13, lapack_driver="gelsd")[0]
    found = linalg.least_squares(matrix * 10.0**power, right)
    # Rounding leaves (eps / floor)^2 = 4e-11 of b in its part in the range of J, which may itself be small.
    inside = np.linalg.norm(matrix @ expected) / np.linalg.norm(right)
    assert error(found.solution.numpy() * 10.0**power, expected) < 1e-9 * 10**decades / inside
    missed = np.linalg.norm(matrix @ expected - right) / np.linalg.norm(right)
    assert found.residual == pytest.approx(missed, rel=1e-8, abs=1e-10)
    if rank < rows:
        assert found.rank is None
        assert 0 < found.floor <= 1e-10 * 10.0**power


@pytest.mark.parametrize("smallest", [1e-6, 1e-8, 3e-10])
def test_least_squares_keep_what_the_kernel_loses(smallest: float) -> None:
    """Half of the rows are combinations of others; singular values reach below the square root of K's rounding."""
    values = np.concatenate([np.geomspace(1, smallest, 30), np.zeros(30)])
    matrix = jacobian(values, 80, seed=12)
    right = np.random.default_rng(13).standard_normal(60)
    expected = scipy.linalg.lstsq(matrix, right, cond=1e-13, lapack_driver="gelsd")[0]
    found = linalg.least_squares(matrix, right)
    assert error(found.solution, expected) < 2e-3
    assert found.floor < smallest / 10
    if smallest < 1e-8:
        kernel = linalg.regress(matrix @ matrix.T, right, method="eigen")
        assert error(matrix.T @ kernel.coefficients[:, 0].numpy(), expected) > 0.1


def test_more_equations_than_unknowns_with_a_solution_and_with_a_cutoff() -> None:
    values = np.concatenate([np.geomspace(1, 1e-4, 15), np.full(5, 1e-9)])
    matrix = jacobian(values, 35, seed=14).T
    right = np.random.default_rng(15).standard_normal(35)
    met = linalg.least_squares(matrix, matrix @ np.arange(20.0))
    assert error(met.solution, np.arange(20.0)) < 1e-4
    assert met.residual < 1e-12
    expected, _, rank, _ = scipy.linalg.lstsq(matrix, right, cond=1e-6, lapack_driver="gelsd")
    cut = linalg.least_squares(matrix, right, cutoff=1e-6)
    assert cut.rank == rank == 15
    assert error(cut.solution, expected) < 1e-6


@pytest.mark.parametrize("decades", [12.5, 13, 13.5, 14, 14.5])
@pytest.mark.parametrize("seed", range(6))
def test_a_huge_solution_is_no_solution(decades: float, seed: int) -> None:
    """Singular values near rounding take u so far that its own rounding is as large as any right-hand side."""
    weak = 1 + seed % 5
    values = np.concatenate([np.ones(5), np.full(weak, 10**-decades), np.zeros(10 - weak)])
    matrix = jacobian(values, 30, seed)
    matrix = np.concatenate([matrix, matrix[:5]])
    right = np.random.default_rng(seed).standard_normal(20)
    try:
        found = linalg.least_squares(matrix, right)
    except TangentError as refusal:
        hidden = decades > 13 and weak > 2
        assert hidden, refusal  # noqa: PT017
        return
    u, sizes, vt = np.linalg.svd(matrix, full_matrices=False)
    damped = sizes / (sizes**2 + found.floor**2) * (u.T @ right)
    strong = sizes > 0.1
    assert found.floor > 0
    assert error(vt[strong] @ found.solution.numpy(), damped[strong]) < 1e-6
    if decades <= 13:
        assert error(found.solution, vt.T @ damped) < 0.05


def test_damped_directions_leave_the_others_alone() -> None:
    matrix, right = np.array([[1.0, 0], [0, 1e-13], [1, 0]]), np.array([1.0, 2, 3])
    found = linalg.least_squares(matrix, right)
    assert float(found.solution[0]) == pytest.approx(2, rel=1e-9)
    assert float(found.solution[1]) == pytest.approx(2 * 1e-13 / found.floor**2, rel=1e-3)


@pytest.mark.parametrize("smallest", [1e-8, 1e-9, 1e-10])
def test_hidden_values_beside_zeros(smallest: float) -> None:
    """Several equal ones, whose u is as large as they are small."""
    matrix = jacobian(np.concatenate([np.ones(5), np.full(5, smallest), np.zeros(2)]), 30, seed=18)
    right = np.random.default_rng(19).standard_normal(12)
    expected = scipy.linalg.lstsq(matrix, right, cond=1e-12, lapack_driver="gelsd")[0]
    found = linalg.least_squares(matrix, right)
    damping = 1 / (1 + (found.floor / smallest) ** 2)
    assert error(found.solution, damping * expected) < 1e-3


@pytest.mark.parametrize("power", [-6, -10, -14, -16, -18, -20, -24, -28])
@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
def test_any_ridge_without_a_solution(power: int, precision: torch.dtype) -> None:
    """Each row twice, with different targets: a ridge far below all singular values changes nothing."""
    matrix = np.repeat(jacobian([1.0, 0.5, 0.2], 8, seed=20), 2, axis=0)
    right = np.random.default_rng(21).standard_normal(6)
    operator = Products(torch.from_numpy(matrix).to(precision))
    kernel = operator.matrix @ operator.matrix.T
    expected = scipy.linalg.lstsq(matrix, right)[0]
    found = linalg.least_squares(operator, right, kernel=kernel, ridge=10.0**power)
    assert error(found.solution, expected) < (1e-4 if precision == torch.float32 else 1e-8) + 100 * 10.0**power
    assert error(matrix.T @ found.coefficients.numpy(), expected) < (1e-3 if precision == torch.float32 else 1e-6) + (
        100 * 10.0**power
    )


@pytest.mark.parametrize("power", [-300, -200, 160, 200])
def test_jacobians_whose_kernel_is_out_of_range(power: int) -> None:
    found = linalg.least_squares(10.0**power * np.eye(3, 4), np.full(3, 10.0**power))
    np.testing.assert_allclose(found.solution, [1, 1, 1, 0], rtol=1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_norms_of_any_size(size: float) -> None:
    assert linalg.least_squares(np.eye(2), np.full(2, size)).norm == pytest.approx(2**0.5 * size)


@pytest.mark.parametrize("condition", [1e4, 1e9])
def test_a_kernel_of_something_else_is_refused(condition: float) -> None:
    matrix, other = (jacobian(np.geomspace(1, 1 / condition, 30), 60, seed) for seed in (22, 23))
    kernel, right = matrix @ matrix.T, matrix @ np.ones(60)
    for wrong in (other @ other.T, np.eye(30), -np.eye(30), np.zeros((30, 30)), 4 * kernel, 1e20 * kernel):
        with pytest.raises(TangentError, match="not J J"):
            linalg.least_squares(matrix, right, kernel=wrong)


class Products:
    """A matrix known by products in its own precision."""

    def __init__(self, matrix: torch.Tensor) -> None:
        self.matrix, self.shape, self.device, self.dtype = matrix, matrix.shape, matrix.device, matrix.dtype

    def __matmul__(self, block: torch.Tensor) -> torch.Tensor:
        return self.matrix @ block.to(self.dtype)

    def rmatmul(self, block: torch.Tensor) -> torch.Tensor:
        return self.matrix.T @ block.to(self.dtype)


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16, torch.float16])
def test_a_kernel_may_be_more_precise_than_the_jacobian(precision: torch.dtype) -> None:
    matrix = torch.from_numpy(jacobian(np.geomspace(1, 0.5, 20), 40, seed=24)).to(precision)
    exact, right = matrix.double(), torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = linalg.least_squares(Products(matrix), right, kernel=exact @ exact.T)
    expected = scipy.linalg.lstsq(exact.numpy(), right.numpy())[0]
    assert error(found.solution, expected) < 20 * torch.finfo(precision).eps
    assert found.floor == 0


@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
@pytest.mark.parametrize("iterations", [25, 26, 30, 40, 60, 86, 88, 94])
def test_iterations_that_do_not_suffice_are_refused(iterations: int, precision: torch.dtype) -> None:
    """A system that has a solution, by values that the kernel hides: it is found, or nothing is."""
    matrix = jacobian(np.concatenate([np.ones(10), np.geomspace(1e-7, 1e-12, 20)]), 60, seed=25)
    right = matrix @ np.random.default_rng(26).standard_normal(60)
    expected = scipy.linalg.lstsq(matrix, right, cond=0.0, lapack_driver="gelsd")[0]
    kernel = torch.from_numpy(matrix @ matrix.T).to(precision)
    try:
        found = linalg.least_squares(matrix, right, kernel=kernel, iterations=iterations)
    except TangentError as refusal:
        assert f"more than iterations={iterations}" in refusal.remedy  # noqa: PT017
    else:
        assert error(found.solution, expected) < 1e-2
        assert found.floor == 0


def test_a_jacobian_of_zeros() -> None:
    found = linalg.least_squares(np.zeros((3, 4)), np.ones(3))
    assert not found.solution.any()
    assert (found.residual, found.rank) == (1.0, None)


def test_too_few_iterations_are_refused() -> None:
    values = np.concatenate([np.geomspace(1, 1e-9, 30), np.zeros(10)])
    matrix = jacobian(values, 60, seed=16)
    right = np.random.default_rng(17).standard_normal(40)
    with pytest.raises(TangentError, match="No solution was found"):
        linalg.least_squares(matrix, right, iterations=3)


def test_bad_input() -> None:
    matrix = np.eye(3, 4)
    cases = [
        ({"jacobian": matrix, "right": np.ones(5)}, "right"),
        ({"jacobian": np.ones(3), "right": np.ones(3)}, "matrix"),
        ({"jacobian": matrix, "right": np.ones(3), "cutoff": 2.0}, "cutoff"),
        ({"jacobian": matrix, "right": np.ones(3), "ridge": -1.0}, "ridge"),
        ({"jacobian": matrix, "right": np.ones(3), "ridge": 1.0, "cutoff": 1e-3}, "cutoff"),
        ({"jacobian": matrix, "right": np.array([1.0, np.nan, 0])}, "NaN|finite"),
        ({"jacobian": matrix, "right": np.ones(3), "kernel": np.eye(2)}, "kernel"),
        ({"jacobian": "J", "right": np.ones(3)}, "Jacobian"),
        ({"jacobian": matrix, "right": np.ones(3), "cutoff": "small"}, "cutoff"),
        ({"jacobian": matrix.astype(complex), "right": np.ones(3)}, "real matrix"),
        ({"jacobian": matrix.astype(object), "right": np.ones(3)}, "real matrix"),
        ({"jacobian": torch.eye(3).to_sparse(), "right": np.ones(3)}, "sparse"),
        ({"jacobian": aslinearoperator(matrix.astype(complex)), "right": np.ones(3), "kernel": np.eye(3)}, "dtype"),
        (
            {"jacobian": LinearOperator((3, 3), matvec=lambda v: v), "right": np.ones(3), "kernel": np.eye(3)},
            "transpose",
        ),
    ]
    for arguments, message in cases:
        with pytest.raises(TangentError, match=message):
            linalg.least_squares(**arguments)


def test_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = []

    @contextmanager
    def bar(*arguments):
        bars.append(arguments)
        yield lambda *_: None

    monkeypatch.setattr(_least_squares, "progress_bar", bar)
    linalg.least_squares(np.eye(3, 4), np.ones(3), iterations=33, progress=False)
    assert bars == [("LSQR", 33, False)]


def test_targets_of_zero() -> None:
    found = linalg.least_squares(np.eye(3, 4), np.zeros(3))
    assert not found.solution.any()
    assert found.residual == 0
    assert found.norm == 0


def test_other_types_of_numbers() -> None:
    matrix, right = jacobian(np.geomspace(1, 0.1, 5), 9, seed=27), np.arange(5.0)
    expected = linalg.least_squares(matrix, right).solution
    for same in (matrix.astype(np.longdouble), np.asfortranarray(matrix), matrix[::-1][::-1]):
        torch.testing.assert_close(linalg.least_squares(same, right).solution, expected)
    torch.testing.assert_close(linalg.least_squares(matrix[::-1], right[::-1].copy()).solution, expected)
    single = aslinearoperator(matrix.astype(np.float32))
    found = linalg.least_squares(single, right, kernel=matrix @ matrix.T)
    assert error(found.solution, expected.numpy()) < 1e-5
