"""The packed factorization: any tile, any form, failure, and memory of one triangle."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.linalg import PackedCholesky, as_source
from tangentlab.linalg import _cholesky as module
from tests.linalg.problems import Readable, eye, power_law, with_spectrum


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 70), tile=st.integers(1, 80), columns=st.integers(1, 4), seed=st.integers(0, 9))
def test_any_tile_gives_the_factor_of_lapack(n: int, tile: int, columns: int, seed: int) -> None:
    kernel = with_spectrum(power_law(n, 1.0), seed)
    right = torch.randn(n, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    factor = PackedCholesky(as_source(kernel), 0.1, tile=tile)
    assert factor.failed is None
    expected = torch.linalg.cholesky(kernel + 0.1 * eye(n))
    rows = torch.zeros(n, n, dtype=torch.float64)
    for part, panel in zip(factor._rows, factor._panels, strict=True):
        rows[part, : part.stop] = panel
    torch.testing.assert_close(rows.tril(), expected)
    torch.testing.assert_close(factor.solve(right), torch.cholesky_solve(right, expected))


@pytest.mark.parametrize("columns", [1, 5])
@pytest.mark.parametrize("n", [127, 300, 513])
def test_panels_of_several_triangles(n: int, columns: int) -> None:
    kernel = with_spectrum(power_law(n, 1.0), 0)
    right = torch.randn(n, columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    lower = torch.linalg.cholesky(kernel)
    factor = PackedCholesky(as_source(kernel), tile=260)
    torch.testing.assert_close(factor.solve_lower(right), torch.linalg.solve_triangular(lower, right, upper=False))
    torch.testing.assert_close(factor.solve_upper(right), torch.linalg.solve_triangular(lower.T, right, upper=True))


def test_the_kernel_is_read_in_panels_and_left_as_it_was() -> None:
    kernel = with_spectrum(power_law(50)).float()
    before, source = kernel.clone(), Readable(kernel)
    factor = PackedCholesky(as_source(source), 1e-2, tile=8)
    assert source.most <= 8 * 50
    assert torch.equal(kernel, before)
    assert not torch.equal(factor._panels[0], kernel[:8, :8])
    PackedCholesky(as_source(kernel.double()), 1e-2, tile=64)
    assert torch.equal(kernel, before)


@pytest.mark.parametrize("row", [0, 5, 9, 19])
def test_failure_names_the_row(row: int) -> None:
    kernel = torch.eye(20, dtype=torch.float64)
    kernel[row, row] = -1
    assert PackedCholesky(as_source(kernel), tile=6).failed == row


def test_single_precision() -> None:
    kernel, right = with_spectrum(power_law(40, 0.5)), torch.ones(40, 1, dtype=torch.float64)
    x = PackedCholesky(as_source(kernel), dtype=torch.float32, tile=16).solve(right)
    error = float((x - torch.linalg.solve(kernel, right)).abs().max())
    assert 1e-9 < error < 1e-4


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "available", lambda device: 1000)
    with pytest.raises(TangentError, match="mixed"):
        PackedCholesky(as_source(torch.eye(100)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "tile"), [(1, 1), (48, 8), (48, 48), (48, 200), (60, 12)])
def test_the_memory_that_is_announced_is_that_of_the_panels(n: int, tile: int, dtype: torch.dtype) -> None:
    """What is held in the end, and on the way the widest panel in float32 and two tiles."""
    factor = PackedCholesky(as_source(eye(n)), dtype=dtype, tile=tile)
    held = sum(panel.numel() * panel.element_size() for panel in factor._panels)
    width = max(len(panel) for panel in factor._panels)
    assert module.packed_bytes(n, dtype, tile) == held + 4 * width * n + 2 * width**2 * dtype.itemsize


def test_a_last_panel_that_is_shorter_needs_no_more_than_is_announced() -> None:
    for n in range(1, 30):
        held = sum(panel.numel() for panel in PackedCholesky(as_source(eye(n)), tile=8)._panels)
        assert 8 * held <= module.packed_bytes(n, tile=8) <= 8 * held + 4 * 8 * n + 8 * 3 * 8**2
        assert isinstance(module.packed_bytes(n, tile=8), int)


@pytest.mark.parametrize(("n", "tile"), [(50, 8), (48, 8), (3, 8)])
def test_progress_is_told_in_tiles(n: int, tile: int) -> None:
    """Panel i takes i tiles left of the diagonal, each with a product and a solution: (2 i + 1), in all a square."""
    told: list[tuple[float, str | None]] = []
    PackedCholesky(as_source(eye(n)), tile=tile, tick=lambda steps=1, note=None: told.append((steps, note)))
    panels = -(-n // tile)
    assert sum(steps for steps, _ in told) == panels**2
    assert [steps for steps, _ in told] == sorted(steps for steps, _ in told)
    assert [note for _, note in told] == [f"row {min(n, (i + 1) * tile)} of {n}" for i in range(panels)]


def test_a_factor_of_exactly_the_free_memory_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    need = module.packed_bytes(40, torch.float64, 8)
    monkeypatch.setattr(module, "available", lambda device: need)
    assert PackedCholesky(as_source(eye(40)), tile=8).failed is None
    monkeypatch.setattr(module, "available", lambda device: need - 1)
    with pytest.raises(TangentError, match="mixed"):
        PackedCholesky(as_source(eye(40)), tile=8)


_CHILD = """
import re, torch
torch.set_num_threads(1)
from tangentlab.linalg import PackedCholesky, as_source

class Kernel:
    dtype, device = torch.float32, torch.device("cpu")
    def __init__(self, n): self.shape = (n, n)
    def read(self, rows, columns):
        i, j = torch.arange(rows.start, rows.stop), torch.arange(columns.start, columns.stop)
        return torch.exp(-0.01 * (i[:, None] - j).abs().float())
    def diagonal(self): return torch.ones(self.shape[0])
    def __matmul__(self, block): raise NotImplementedError

PackedCholesky(as_source(Kernel(64)), 1.0, tile=16).solve(torch.ones(64, 2))
def field(name):  # ru_maxrss would not do: a child inherits the peak of the process that started it
    return int(re.search(name + r":\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
open("/proc/self/clear_refs", "w").write("5")
before = field("VmRSS")
n = 5000  # so much larger than what else the process allocates meanwhile
factor = PackedCholesky(as_source(Kernel(n)), 1.0, tile=256)
factor.solve(torch.ones(n, 2, dtype=torch.float64))
print((field("VmHWM") - before) / (8 * n * n))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak can be reset on Linux only")
def test_memory_is_that_of_one_triangle() -> None:
    """In units of a whole matrix in float64: half of it, the diagonal tiles, and a few panels."""
    # Tiles of the usual size are returned to the system at once; so must these small ones be, or the heap is measured.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    run = subprocess.run([sys.executable, "-c", _CHILD], check=True, capture_output=True, text=True, env=environment)
    assert 0.3 < float(run.stdout) < 0.5 + 0.25


@pytest.mark.parametrize("tile", [8, 64])
def test_what_is_added_grows_where_it_is_too_small(tile: int) -> None:
    """The last rows repeat the first, less than rounding hides: the factor is that of K with more on their diagonal."""
    kernel = with_spectrum(power_law(40), 0)
    kernel = torch.cat([torch.cat([kernel, kernel[:, :10]], 1), torch.cat([kernel[:10], kernel[:10, :10]], 1)])
    kernel[40:, 40:] -= 1e-6 * torch.eye(10, dtype=torch.float64)
    source = as_source(kernel)
    assert PackedCholesky(source, 1e-8, tile=tile).failed == 40
    factor = PackedCholesky(source, 1e-8, tile=tile, growth=10.0)
    assert factor.failed is None
    eye_ = torch.eye(50, dtype=torch.float64)
    lower = torch.linalg.inv(factor.solve_lower(eye_))
    added = (lower @ lower.T - kernel).diagonal()
    assert (added[:32] < 2e-8).all() or tile == 64
    assert 1e-6 < float(added[-1]) < 1e-4
    torch.testing.assert_close(lower @ lower.T, kernel + added.diag(), rtol=0, atol=1e-10)


def test_a_kernel_that_is_far_from_positive_definite_fails_all_the_same() -> None:
    kernel = with_spectrum(power_law(20), 0)
    kernel[15, 15] = -1e6
    assert PackedCholesky(as_source(kernel), 1e-12, tile=8, growth=10.0).failed == 15
