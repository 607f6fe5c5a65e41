"""How a regression is solved: which method "auto" takes, what is read, what a refusal says and whether it helps."""

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from tangentlab import TangentError
from tangentlab.linalg import LowRank, regress
from tangentlab.linalg import _solvers as module
from tangentlab.linalg._cholesky import packed_bytes
from tests.linalg.problems import Operator, Readable, eye, power_law, times, with_spectrum


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"-?\d+\.?\d*(?:e[+-]?\d+)?", text)]


def remedy(refusal: pytest.ExceptionInfo[TangentError]) -> float:
    """The ridge that a refusal proposes."""
    return float(re.search(r"ridge=([0-9.e+-]+)", refusal.value.remedy)[1])  # type: ignore[index]


class Bars:
    """Records progress bars."""

    def __init__(self) -> None:
        self.bars: list[dict[str, Any]] = []

    @contextmanager
    def __call__(self, title: str, total: float, show: bool | None = None) -> Iterator[Any]:
        bar: dict[str, Any] = {"title": title, "total": total, "show": show, "steps": []}
        self.bars.append(bar)
        yield lambda steps=1, note=None: bar["steps"].append(steps)


@pytest.mark.parametrize("method", ["auto", "eigen"])
@pytest.mark.parametrize("form", ["matrix", "features"])
def test_targets_out_of_reach_leave_no_trace_in_the_coefficients(method: Any, form: str) -> None:
    """a = K^+ y: what lies in the null space of the kernel is dropped and not kept."""
    j, y = normal(40, 10), normal(40, 2, seed=1)
    fit = regress(j @ j.T if form == "matrix" else LowRank(j), y, method=method)
    expected = torch.linalg.pinv(j @ j.T, hermitian=True, rcond=1e-12) @ y
    torch.testing.assert_close(fit.coefficients, expected, rtol=1e-8, atol=1e-10)
    outside = y - j @ torch.linalg.lstsq(j, y).solution
    assert fit.residual == pytest.approx(float((outside.norm(dim=0) / y.norm(dim=0)).max()))
    assert fit.rank == 10
    assert 0 < fit.cutoff < 1e-10 * float(torch.linalg.eigvalsh(j @ j.T)[-1])


@pytest.mark.parametrize(("n", "k"), [(30, 5), (5, 30)])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_features_are_decomposed_and_not_their_kernel(n: int, k: int, ridge: float) -> None:
    j, y = normal(n, k), normal(n, seed=1)
    fit = regress(LowRank(j), y, ridge=ridge)
    assert fit.method == "eigen"
    inverse = torch.linalg.pinv(j @ j.T + ridge * eye(n), hermitian=True, rcond=1e-12)
    torch.testing.assert_close(fit.coefficients[:, 0], inverse @ y, rtol=1e-8, atol=1e-9)


def test_nothing_is_cut_off_a_regular_kernel() -> None:
    fit = regress(with_spectrum(power_law(30)), normal(30), method="eigen")
    assert (fit.cutoff, fit.rank) == (0, 30)


@pytest.mark.parametrize(
    ("size", "readable", "free", "method"),
    [
        (10, False, 2.0, "cholesky"),
        (11, False, 2.0, "cg"),
        (11, True, 2.0, "cholesky"),
        (11, True, 1.0, "mixed"),
        (10, False, 0.99, "mixed"),
    ],
)
def test_the_method_by_size_form_and_memory(
    size: int, readable: bool, free: float, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free memory in units of the factor in float64; "mixed" takes less."""
    monkeypatch.setattr(module, "_SMALL", 10)
    monkeypatch.setattr("tangentlab.linalg._source.available", lambda device: free * packed_bytes(size))
    kernel, y = with_spectrum(power_law(size, 1.0)), normal(size)
    fit = regress(Readable(kernel) if readable else Operator(kernel), y, ridge=0.1)
    assert fit.method == method
    torch.testing.assert_close(fit.coefficients[:, 0], torch.linalg.solve(kernel + 0.1 * eye(size), y))


@pytest.mark.parametrize("tile", [100, 160, 30])
def test_whole_tiles_of_a_kernel_on_disk_are_read_once(tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels are of as many tiles as fit into the usual panel, at least one: no tile is cut."""
    monkeypatch.setattr(module, "TILE", tile)
    bars = Bars()
    monkeypatch.setattr(module, "progress_bar", bars)
    kernel, y = with_spectrum(power_law(300)), normal(300)
    reads: list[tuple[int, int]] = []

    class Noted(Readable):
        def read(self, rows: slice, columns: slice) -> Tensor:
            if columns.stop == rows.stop:
                reads.append((rows.start, rows.stop))
            return super().read(rows, columns)

    fit = regress(Noted(kernel), y, ridge=0.1, method="cholesky", progress=True)
    torch.testing.assert_close(fit.coefficients[:, 0], torch.linalg.solve(kernel + 0.1 * eye(300), y))
    width = 128 if tile == 160 else 64
    panels = [(start, min(start + width, 300)) for start in range(0, 300, width)]
    assert reads == panels
    assert [(bar["title"], bar["total"], bar["show"]) for bar in bars.bars] == [("Cholesky", len(panels) ** 2, True)]
    assert sum(bars.bars[0]["steps"]) == len(panels) ** 2


def test_the_bar_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    bars = Bars()
    monkeypatch.setattr(module, "progress_bar", bars)
    regress(with_spectrum(power_law(60)), normal(60), ridge=0.01, method="cg", iterations=77, progress=False)
    assert [(bar["title"], bar["total"], bar["show"]) for bar in bars.bars] == [("cg", 77, False)]
    assert set(bars.bars[0]["steps"]) == {1}


@pytest.mark.parametrize("scale", [0, 300, -300])
@pytest.mark.parametrize("method", ["cg", "mixed", "cholesky"])
def test_an_indefinite_kernel_is_called_so(method: Any, scale: int) -> None:
    """The ends of the spectrum are named at the user's scale, and the ridge that is proposed helps."""
    kernel, y = times(with_spectrum(torch.linspace(-0.5, 3, 40, dtype=torch.float64)), scale), normal(40)
    with pytest.raises(TangentError, match="not positive definite") as refusal:
        regress(kernel, y, method=method)
    low, high = numbers(refusal.value.what.split("smallest")[1])
    unit = float(times(1.0, scale))
    assert low / unit == pytest.approx(-0.5, rel=1e-2)
    assert high / unit == pytest.approx(3, rel=1e-2)
    ridge = remedy(refusal)
    assert ridge / unit == pytest.approx(1, rel=1e-2)
    fit = regress(kernel, y, ridge=ridge, method=method)
    expected = torch.linalg.solve(times(kernel, -scale) + ridge / unit * eye(40), y)
    torch.testing.assert_close(times(fit.coefficients[:, 0], scale), expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("ridge", [0.0, 1e-9])
def test_an_iteration_that_ends_early_says_where_and_why(ridge: float) -> None:
    """Not called indefinite, since it is not; the residual is that of the steps that were made."""
    values = torch.logspace(0, -8, 80, dtype=torch.float64)
    with pytest.raises(TangentError, match="stopped at a relative residual") as refusal:
        regress(with_spectrum(values), normal(80), ridge=ridge, method="cg", rank=1, iterations=20)
    residual, products, asked = numbers(refusal.value.what.replace("method='cg'", ""))
    assert products in (20, 21)
    assert residual > asked == 1e-10
    low, high = numbers(refusal.value.why.split("about")[1])[:2]
    assert low == pytest.approx(1e-8 + ridge, rel=1e-2)
    assert high == pytest.approx(1, rel=1e-2)
    assert remedy(refusal) == pytest.approx(1e-6, rel=1e-2)
    assert "rank" in refusal.value.remedy
    fit = regress(with_spectrum(values), normal(80), ridge=1e-6, method="cg")
    assert fit.residual <= 1e-10


@pytest.mark.parametrize("negative", [0.0, -1.0])
def test_the_ends_of_a_large_spectrum_are_found_beside_dominant_eigenvalues(
    negative: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve eigenvalues of 1e7 hide the rest from plain power iteration: directions that are found are taken out."""
    monkeypatch.setattr(module, "_SMALL", 10)
    rest = torch.linspace(0, 0.1, 87, dtype=torch.float64)
    values = torch.cat([torch.linspace(1e7, 2e7, 12, dtype=torch.float64), rest, torch.tensor([negative]).double()])
    with pytest.raises(TangentError, match="smallest eigenvalue") as refusal:
        regress(with_spectrum(values), normal(100), method="cholesky")
    low, high = numbers(refusal.value.what.split("smallest")[1])
    assert high == pytest.approx(2e7, rel=1e-3)
    assert low == pytest.approx(negative, rel=1e-2, abs=1e-6)
    assert ("minimum-norm" in refusal.value.remedy) == (negative == 0)


@pytest.mark.parametrize(("n", "small"), [(8, 4), (16, 4), (20, 4), (23, 4), (24, 4), (100, 99)])
def test_the_ends_of_spectra_of_few_blocks(n: int, small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A basis never has more vectors than the space."""
    monkeypatch.setattr(module, "_SMALL", small)
    values = torch.linspace(-2, 5, n, dtype=torch.float64)
    with pytest.raises(TangentError, match="smallest eigenvalue") as refusal:
        regress(with_spectrum(values), normal(n), method="cholesky")
    low, high = numbers(refusal.value.what.split("smallest")[1])
    assert -2.01 < low < -1.5
    assert 4.4 < high < 5.01


def test_a_singular_kernel_has_a_method_for_it() -> None:
    j, y = normal(50, 10), normal(50, seed=1)
    for method, names in (("cholesky", "minimum-norm"), ("mixed", "eigen"), ("cg", "rank")):
        with pytest.raises(TangentError) as refusal:
            regress(j @ j.T, y, method=method)  # type: ignore[arg-type]
        assert names in refusal.value.remedy
        assert remedy(refusal) > 0


def test_options_reach_the_solver() -> None:
    """A larger tolerance is accepted as it is asked for; float32 operators have one of their own; seeds differ."""
    kernel, y = with_spectrum(power_law(200, 2.0)), normal(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what was asked for is no reason to warn
        loose = regress(kernel, y, ridge=1e-3, method="cg", tolerance=1e-2, rank=5)
    assert 1e-4 < loose.residual <= 1e-2
    single = regress(Operator(kernel.float()), y, ridge=1e-2, method="cg", rank=5)
    assert 1e-10 < single.residual <= 1e-5
    double = regress(Operator(kernel), y, ridge=1e-2, method="cg", rank=5)
    assert double.residual <= 1e-10
    one, two, other = (regress(kernel, y, ridge=1e-3, method="cg", rank=5, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(one.coefficients, two.coefficients)
    assert not torch.equal(one.coefficients, other.coefficients)


def test_a_ridge_far_above_the_kernel() -> None:
    """(K + rho) a = y with rho so large that K changes no digit: a = y / rho, and the residual is what K adds."""
    kernel, y = with_spectrum(power_law(12)), normal(12, 2)
    for ridge in (1e15, 1e18, 1e19, 1e25):
        fit = regress(kernel, y, ridge=ridge)
        torch.testing.assert_close(fit.coefficients * ridge, y, rtol=1e-14, atol=0)
        norm = (y * (kernel @ y)).sum(0).sqrt() / ridge
        torch.testing.assert_close(fit.norm, norm, rtol=1e-12, atol=0)
