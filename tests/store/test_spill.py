"""Factors kept, spilled or computed again, and what is foretold: the same bits, the right choice."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tangentlab import TangentError
from tangentlab.kernels import compute_factors
from tangentlab.kernels._spill import in_own_memory, read_factors, size_in_bytes, write_factors
from tangentlab.store import Probe, _panels, compute, estimate, probe
from tangentlab.store._rates import DiskRates, FactorRate, spilling_pays, visits
from tangentlab.store._setup import Request, prepare
from tangentlab.store._tiles import TilePlan, row_blocks, units
from tangentlab.store._worker import Worker
from tests.kernels.cases import CASES, build
from tests.store.problems import images, network

PLAN = TilePlan(samples=400, readouts=1, tile=40, batch=20)
PROBE = Probe(
    plan=PLAN,
    factors=FactorRate(seconds=1e-3, bytes=1e4),
    entry_seconds=1e-7,
    sample_seconds=0.0,
    disk=DiskRates(write=1e8, read=1e9),
    free=10**9,
    capacity=100,
    working=1000,
    itemsize=4,
)


@pytest.mark.parametrize("case", CASES[::3], ids=lambda case: case.name)
def test_factors_come_back_as_they_were(case: Any) -> None:
    """Of every form: what is read contracts to the same bits as what was written."""
    model, x = build(case, 4, torch.float32)
    factors = in_own_memory(compute_factors(model, x, "full"))
    file = io.BytesIO()
    file.name = "memory"
    write_factors(factors, file)
    assert file.tell() == size_in_bytes(factors)
    file.seek(0)
    again = read_factors(file, factors[0:1], factors.count, torch.device("cpu"))
    rows = factors.count * factors.readouts
    dtype = next(iter(factors.parts.values())).g.dtype
    one, two = torch.zeros(rows, rows, dtype=dtype), torch.zeros(rows, rows, dtype=dtype)
    factors.add_gram(factors, one)
    again.add_gram(again, two)
    assert torch.equal(one, two)
    file.seek(0)
    with pytest.raises(EOFError):
        read_factors(file, factors[0:1], factors.count + 1, torch.device("cpu"))


@pytest.mark.parametrize("readout", ["pntk", "trace", "full"])
def test_kept_spilled_and_computed_again(readout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, options = images(120), {"tile": 10, "batch_size": 4, "readout": readout}
    read: list[int] = []
    plain = _panels.read_factors
    monkeypatch.setattr(_panels, "read_factors", lambda *arguments: read.append(1) or plain(*arguments))
    kept = compute(network(), x, tmp_path / "kept", **options).to_tensor()
    assert not read
    monkeypatch.setattr("tangentlab.store._compute.capacity", lambda *_: 3)  # panels of twelve
    for name, pays in (("spilled", True), ("again", False)):
        monkeypatch.setattr("tangentlab.store._rates.spilling_pays", lambda *_, pays=pays: pays)
        kernel = compute(network(), x, tmp_path / name, **options)
        assert torch.equal(kernel.to_tensor(), kept)
        assert bool(read) == pays
        read.clear()
    elsewhere = tmp_path / "scratch"
    monkeypatch.setattr("tangentlab.store._rates.spilling_pays", lambda *_: True)
    kernel = compute(network(), x, tmp_path / "k", scratch=elsewhere, **options)
    assert read
    assert torch.equal(kernel.to_tensor(), kept)
    assert not list(elsewhere.iterdir())


def test_shared_factors_are_not_read_by_who_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request.of(network(), images(60), tile=10, batch_size=4)
    engine, manifest = prepare(request, tmp_path / "k")
    read: list[int] = []
    plain = _panels.read_factors
    monkeypatch.setattr(_panels, "read_factors", lambda *arguments: read.append(1) or plain(*arguments))
    worker = Worker(engine, tmp_path / "k", tmp_path / "scratch", capacity=4, key=manifest.key)
    assert worker.factorize(range(6)) == 6
    assert len(worker.run([(2, 3), (4, 5)])) == 2
    assert not read  # the last four are in memory
    assert len(worker.run([(0, 1)])) == 1
    assert len(read) == 2


class Moody(nn.Module):
    """Uses its parameters otherwise on some samples."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.one(x))
        return self.two(h) if float(x.amax()) < 50 else self.two(torch.tanh(self.one(x) + h))


def test_a_change_of_control_flow_takes_the_fallback(tmp_path: Path) -> None:
    from tangentlab import reference

    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[17] = 60
    model = Moody().double()
    with pytest.warns(UserWarning, match="fallback"):
        kernel = compute(model, x, tmp_path / "k.zarr", tile=5, batch_size=1)
    expected = reference.ntk(model, x, readout="pntk")
    torch.testing.assert_close(kernel.to_tensor(), expected)


def test_the_choice_between_disk_and_arithmetic() -> None:
    slow, fast = FactorRate(1e-2, 1e4), FactorRate(1e-6, 1e6)
    disk = DiskRates(write=1e8, read=1e9)
    assert spilling_pays(3, slow, disk)
    assert not spilling_pays(3, fast, disk)
    assert not spilling_pays(1, slow, disk)


def test_visits() -> None:
    assert visits(PLAN, capacity=10, workers=1) == 1
    assert visits(PLAN, capacity=10, workers=4) == 4
    assert visits(PLAN, capacity=2, workers=1) == 5.5  # one row at a time: 1 + 2 + ... + 10 panels for 10
    assert visits(PLAN, capacity=6, workers=1) == 1.5


@pytest.mark.parametrize("rows", [1, 3, 10, 50])
def test_every_tile_is_visited_once(rows: int) -> None:
    tiles = list(PLAN.tiles())
    found = [(row, column) for block in row_blocks(tiles, rows) for column, its in block for row in its]
    assert sorted(found) == tiles
    for workers in (1, 3, 20):
        groups = units(PLAN, workers)
        assert sorted(tile for group in groups for tile in group) == tiles
        assert len(groups) >= min(len(tiles), 4 * workers)
        sizes = [sum(map(PLAN.entries, group)) for group in groups]
        assert sizes == sorted(sizes, reverse=True), "small ones last"


def test_estimates_add_up() -> None:
    one, four = PROBE.estimate(), PROBE.estimate(4)
    pairs = 400 * 401 / 2
    assert one.contract_seconds == pytest.approx(pairs * 1e-7)
    assert four.contract_seconds == pytest.approx(one.contract_seconds / 4)
    assert one.factor_seconds == pytest.approx(0.4)
    assert one.factors == "in memory"
    assert (four.factors, four.scratch) == ("spilled", 4_000_000)
    assert one.disk == 55 * (40 * 40 * 4 + 4)
    assert one.memory == 1000 + 400 * 10_000
    again = replace(PROBE, capacity=2, factors=FactorRate(1e-6, 1e6)).estimate()
    assert again.factors == "computed again"
    assert again.factor_seconds == pytest.approx(400 * 5.5e-6)
    assert replace(PROBE, missing=0.5).estimate().contract_seconds == pytest.approx(one.contract_seconds / 2)
    assert "more than is free" in str(replace(PROBE, free=10).estimate())
    for workers in (0, 1.5, True):
        with pytest.raises(TangentError, match="workers is"):
            PROBE.estimate(workers)


def test_an_estimate_is_measured_and_leaves_nothing(tmp_path: Path) -> None:
    found = probe(network(), images(60), tmp_path, samples=5000, tile=20)
    assert found.plan.samples == 5000
    assert found.factors.seconds > 0
    assert found.entry_seconds > 0
    assert found.factors.bytes == size_in_bytes(in_own_memory(compute_factors(network(), images(1), "pntk")))
    assert not list(tmp_path.iterdir())
    whole = estimate(network(), images(60), tmp_path / "k", tile=20)
    kernel = compute(network(), images(60), tmp_path / "k", tile=20)
    assert whole.disk == kernel.nbytes_stored
    assert estimate(network(), images(60), tmp_path / "k", tile=20).contract_seconds == 0
