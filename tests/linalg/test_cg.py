"""Conjugate gradients: the answers of LAPACK, the residual that an answer has, and how many products it takes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tangentlab.linalg._cg import Solution, conjugate_gradients
from tests.linalg.problems import with_spectrum


class Counted:
    """A matrix that counts its products, and from some product on adds noise to them."""

    def __init__(self, matrix: Tensor, exact: int | None = None) -> None:
        self.matrix, self.exact, self.count = matrix, exact, 0
        self.noise = torch.Generator().manual_seed(0)

    def __call__(self, block: Tensor) -> Tensor:
        self.count += 1
        image = self.matrix @ block
        if self.exact is None or self.count <= self.exact:
            return image
        return image + 100 * torch.randn(image.shape, generator=self.noise, dtype=torch.float64)


def solve(
    product: Any, right: Tensor, tolerance: float = 1e-10, iterations: int = 1000
) -> tuple[Solution, list[float]]:
    """Without a preconditioner; the solution, and the steps that were reported."""
    steps: list[float] = []

    def tick(count: float = 1, note: str | None = None) -> None:
        steps.append(count)
        assert note is not None
        assert note.startswith("residual ")

    found = conjugate_gradients(
        product, right, lambda block: block, tolerance=tolerance, iterations=iterations, tick=tick
    )
    return found, steps


def relative(matrix: Tensor, x: Tensor, right: Tensor) -> float:
    """The largest relative residual of columns that are not zero."""
    size = right.norm(dim=0)
    return float(((right - matrix @ x).norm(dim=0)[size > 0] / size[size > 0]).max())


THREE = torch.tensor([1.0, 2.0, 5.0], dtype=torch.float64).repeat(10)
MANY = torch.logspace(0, 4, 100, dtype=torch.float64)


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e8])
def test_as_many_steps_as_there_are_eigenvalues(scale: float) -> None:
    """Three steps whatever the size of the targets, and a product to check the answer; a zero column needs none."""
    product = Counted(with_spectrum(THREE))
    right = scale * torch.randn(30, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    right[:, 1] = 0
    before = right.clone()
    found, steps = solve(product, right)
    assert (found.iterations, product.count, steps) == (4, 4, [1, 1, 1])
    assert not found.indefinite
    assert torch.equal(right, before)
    expected = torch.linalg.solve(product.matrix, right)
    torch.testing.assert_close(found.x, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))
    assert found.residual == pytest.approx(relative(product.matrix, found.x, right), rel=1e-6)


def test_every_column_is_solved_to_its_own_size() -> None:
    """A small column beside a large one is not done when it is small beside that one."""
    product = Counted(with_spectrum(MANY))
    right = torch.randn(100, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    right = right * torch.tensor([1e-9, 1.0, 1e6])
    found, _ = solve(product, right, 1e-6)  # a thousand products: the square root of the condition number is a hundred
    assert relative(product.matrix, found.x, right) == pytest.approx(found.residual, rel=1e-6)
    assert found.residual <= 1e-6
    assert found.iterations == product.count


@pytest.mark.parametrize(("iterations", "steps"), [(10, 10), (24, 24), (25, 25), (26, 25), (27, 26)])
def test_no_more_steps_than_allowed_and_a_new_residual_after_25(iterations: int, steps: int) -> None:
    """The 26th product computes the residual anew. Where steps run out, one more tells what the answer is worth."""
    product = Counted(with_spectrum(MANY))
    right = 3e5 * torch.randn(100, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, told = solve(product, right, iterations=iterations)
    assert told == [1] * steps
    assert found.iterations == product.count <= iterations + 1
    assert found.residual > 1e-10
    assert relative(product.matrix, found.x, right) <= found.residual * (1 + 1e-6)
    if iterations <= 25:
        assert relative(product.matrix, found.x, right) == pytest.approx(found.residual, rel=1e-6)


@pytest.mark.parametrize("others", [0, 1])
def test_one_column_shows_that_a_matrix_is_indefinite(others: int) -> None:
    """Its neighbor, an eigenvector of a positive eigenvalue, does not."""
    matrix = torch.diag(torch.tensor([2.0, 3.0, -1.0], dtype=torch.float64))
    right = torch.eye(3, dtype=torch.float64)[:, [2, 0][: 1 + others]]
    found, _ = solve(Counted(matrix), right)
    assert found.indefinite
    assert found.residual == pytest.approx(1)


def test_directions_without_curvature_that_no_target_needs() -> None:
    """A singular matrix, and targets in its range: no step is made in the null space, and nothing is indefinite."""
    matrix = torch.diag(torch.tensor([2.0, 3.0, 0.0], dtype=torch.float64))
    right = torch.tensor([[2.0, 0.0], [6.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    found, _ = solve(Counted(matrix), right)
    assert not found.indefinite
    torch.testing.assert_close(found.x[:, 0], torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    assert not found.x[:, 1].any()


def test_the_best_answer_is_kept() -> None:
    """Products that become worthless after the first check make later answers worse."""
    matrix = with_spectrum(torch.linspace(1, 50, 100, dtype=torch.float64))
    right = torch.randn(100, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first, _ = solve(Counted(matrix), right, iterations=25)
    assert first.residual < 0.1
    found, _ = solve(Counted(matrix, exact=26), right, iterations=100)
    assert torch.equal(found.x, first.x)
    assert found.residual == first.residual


def test_a_claim_that_does_not_hold_is_made_good() -> None:
    """Early products that were off by a thousandth spoil the answer that the recurrence claims: it starts again."""
    matrix = with_spectrum(THREE)
    off = with_spectrum(THREE) + 1e-3 * with_spectrum(THREE.flip(0), seed=7)
    count = 0

    def product(block: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return (off if count <= 3 else matrix) @ block

    right = torch.randn(30, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, steps = solve(product, right)
    assert relative(matrix, found.x, right) <= 1e-10
    assert found.iterations == count < 24
    assert len(steps) <= count - 2


@pytest.mark.parametrize("noise", [1e-9, 1e-3])
def test_what_does_not_get_better_ends(noise: float) -> None:
    """Products that are off by noise, as those of float32 are: where a new start gives no better answer, it is over."""
    matrix, generator = with_spectrum(THREE), torch.Generator().manual_seed(0)

    def product(block: Tensor) -> Tensor:
        image = matrix @ block
        return image * (1 + noise * torch.randn(image.shape, generator=generator, dtype=torch.float64))

    right = torch.randn(30, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found, _ = solve(product, right, 1e-14, 10_000)
    assert found.iterations < 1000
    assert relative(matrix, found.x, right) < 10 * noise


def test_a_preconditioner_is_used() -> None:
    """With the inverse itself one step is enough."""
    matrix = with_spectrum(MANY)
    product, inverse = Counted(matrix), torch.linalg.inv(matrix)
    right = torch.randn(100, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = conjugate_gradients(
        product,
        right,
        lambda block: inverse @ block,
        tolerance=1e-9,
        iterations=50,
        tick=lambda steps=1, note=None: None,
    )
    assert found.iterations == 2
    torch.testing.assert_close(found.x, torch.linalg.solve(matrix, right), rtol=1e-7, atol=1e-9)
