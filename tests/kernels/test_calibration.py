"""Calibration: rates are measured once, kept, read back only if sound, and change nothing but rounding."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tangentlab
from tangentlab._files import user_cache
from tangentlab.kernels import _arrangement, _contract, _plan
from tangentlab.kernels import _calibration as calibration
from tangentlab.kernels._cost import DEFAULT, ENTRYWISE, STORE, Operations, Rates, Work, compact_is_cheaper, price
from tangentlab.kernels._disk import DiskRates
from tangentlab.kernels.rules._outer import Outer

CPU = torch.device("cpu")
MEASURED = Rates(16.0, 64.0, 2.0**36)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(calibration.VARIABLE, "on")
    monkeypatch.setattr(calibration, "_known", {})
    return user_cache() / "rates"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[torch.dtype]:
    """The dtypes that were measured."""
    calls: list[torch.dtype] = []

    def measure(device: torch.device, dtype: torch.dtype) -> Rates:
        calls.append(dtype)
        return MEASURED

    monkeypatch.setattr(calibration, "measure", measure)
    return calls


def forget() -> None:
    """Do as if this were another process."""
    calibration._known.clear()


def test_work_is_priced() -> None:
    work = 3 * (2 * 5 + ENTRYWISE) + 4 * STORE
    assert work == Operations(30, 3, 4)
    assert price(work, Rates(10.0, 100.0)) == 30 + 30 + 400
    assert price(7.0, Rates()) == 7


def test_a_measurement_gives_rates_in_bounds() -> None:
    found = calibration.measure(CPU, torch.float32)
    for name, (low, high) in calibration._BOUNDS.items():
        assert low <= getattr(found, name) <= high
    assert found.speed > 1e8


def test_rates_are_measured_once_for_each_dtype(folder: Path, measured: list[torch.dtype]) -> None:
    for _ in range(2):
        assert calibration.rates(CPU, torch.float32) == MEASURED
        assert calibration.rates(CPU, torch.float64) == MEASURED
    assert measured == [torch.float32, torch.float64]
    forget()
    assert calibration.rates(CPU, torch.float32) == MEASURED
    assert len(measured) == 2
    assert len(list(folder.iterdir())) == 2  # nothing unfinished is left


def test_other_threads_are_another_machine(measured: list[torch.dtype], monkeypatch: pytest.MonkeyPatch) -> None:
    calibration.rates(CPU, torch.float32)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 99)
    calibration.rates(CPU, torch.float32)
    assert len(measured) == 2


def damaged(content: dict[str, Any]) -> dict[str, bytes]:
    def dump(**changes: Any) -> bytes:
        return json.dumps(content | changes).encode()

    return {
        "empty": b"",
        "not JSON": b"\x00\xff{",
        "a list": b"[1, 2]",
        "nested": b"[" * 100_000,
        "cut off": dump()[:-9],
        "no rates": dump(rates=None),
        "not a number": dump(rates=content["rates"] | {"store": "fast"}),
        "NaN": dump(rates=content["rates"] | {"store": float("nan")}),
        "zero": dump(rates=content["rates"] | {"entrywise": 0}),
        "infinite": dump(rates=content["rates"] | {"speed": float("inf")}),
        "of another machine": dump(key=content["key"] | {"device": "other"}),
    }


def test_damaged_files_are_replaced(folder: Path, measured: list[torch.dtype]) -> None:
    calibration.rates(CPU, torch.float32)
    (path,) = folder.iterdir()
    whole = path.read_bytes()
    for count, (name, content) in enumerate(damaged(json.loads(whole)).items(), 2):
        path.write_bytes(content)
        forget()
        assert calibration.rates(CPU, torch.float32) == MEASURED, name
        assert len(measured) == count, name
        assert path.read_bytes() == whole, name


def test_the_first_process_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes that measure at a time take the rates of the one that is ready first."""
    first, later = Rates(4.0, 8.0, 2.0**30), Rates(8.0, 16.0, 2.0**31)
    results = [later, first]

    def measure(device: torch.device, dtype: torch.dtype) -> Rates:
        own = results.pop(0)
        if results:
            assert calibration.rates(device, dtype) == first
        return own

    monkeypatch.setattr(calibration, "measure", measure)
    assert calibration.rates(CPU, torch.float32) == first


@pytest.mark.parametrize("kind", ["a file in the way", "read-only", "full"])
def test_a_cache_that_cannot_be_written_to(
    kind: str, tmp_path: Path, measured: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "a file in the way":
        (tmp_path / "file").touch()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    else:
        error = OSError(28 if kind == "full" else 30, kind)

        def refuse(*_: Any) -> None:
            raise error

        monkeypatch.setattr(os, "link" if kind == "full" else "replace", refuse)
    for _ in range(2):
        assert calibration.rates(CPU, torch.float32) == MEASURED
    assert len(measured) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "file"]


def test_off_neither_measures_nor_reads(
    folder: Path, measured: list[torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibration.rates(CPU, torch.float32)
    monkeypatch.setenv(calibration.VARIABLE, "OFF ")
    assert calibration.rates(CPU, torch.float32) == calibration.rates(CPU, torch.float64) == DEFAULT
    assert len(measured) == 1
    monkeypatch.setenv(calibration.VARIABLE, "perhaps")
    with pytest.raises(tangentlab.TangentError, match="TANGENTLAB_CALIBRATION is 'perhaps'"):
        calibration.rates(CPU, torch.float32)


def test_rates_of_the_disk(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[Path] = []
    monkeypatch.setattr(calibration, "measure_disk", lambda where: measured.append(where) or DiskRates(3e8, 9e8))
    for _ in range(3):
        found = calibration.disk_rates(tmp_path)
        assert found.write == pytest.approx(3e8, rel=0.2)
        assert found.read == pytest.approx(9e8, rel=0.2)
        forget()
    assert measured == [tmp_path] * calibration._FILES
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes().replace(b'"read"', b'"red"'))
    assert calibration.disk_rates(tmp_path) == found
    assert len(measured) == 2 * calibration._FILES
    monkeypatch.setenv(calibration.VARIABLE, "off")
    assert calibration.disk_rates(tmp_path) == DiskRates()
    monkeypatch.setenv(calibration.VARIABLE, "on")

    def full(_: Path) -> DiskRates:
        raise OSError(28, "full")

    monkeypatch.setattr(calibration, "measure_disk", full)
    assert calibration.disk_rates(tmp_path.parent) == DiskRates()


def test_a_device_without_the_dtype_has_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: Any) -> Rates:
        raise RuntimeError("not implemented for 'Half'")

    monkeypatch.setattr(calibration, "measure", measure)
    assert calibration.rates(CPU, torch.float16) == DEFAULT
    assert calibration.rates(torch.device("meta"), torch.float32) == DEFAULT


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(2, 6, 3), nn.Tanh(), nn.Conv2d(6, 8, 3, padding=1, groups=2), nn.Tanh(), nn.Flatten(2)
    return nn.Sequential(*layers, nn.Linear(16, 5), nn.Flatten(), nn.Tanh(), nn.Linear(40, 3)).double()


X = torch.randn(9, 2, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
EXTREMES = [Rates(1.0, 1.0), Rates(1.0, 1e5), Rates(1e5, 1.0), Rates(1e5, 1e5)]


def test_rates_change_forms_and_nothing_but_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    model, forms, sketches = network(), set(), []
    expected = tangentlab.reference.ntk(model, X)
    for extreme in EXTREMES:
        for module in (_plan, _contract):
            monkeypatch.setattr(module, "rates", lambda *_, extreme=extreme: extreme)
        forms.add(tuple(tangentlab.explain(model, X).form))
        torch.testing.assert_close(tangentlab.ntk(model, X), expected, rtol=1e-11, atol=1e-12)
        sketches.append(tangentlab.sketch(model, X, 32).features)
    assert len(forms) > 1
    # The form decides which random numbers a sketch takes, so sketches are the same to the last bit.
    assert all(torch.equal(sketches[0], other) for other in sketches)


def test_slow_entrywise_products_are_avoided() -> None:
    use = Outer(torch.Size((64, 64)), torch.zeros(1, 8, 64))
    work = Work("gram", 40, 40, True)
    assert compact_is_cheaper(use, 1, Work("diagonal", 40, 40, True), Rates(1.0, 32.0))
    assert not compact_is_cheaper(use, 1, Work("diagonal", 40, 40, True), Rates(1e5, 32.0))
    assert compact_is_cheaper(use, 1, work, Rates(12.0, 100.0))


def test_explain_says_where_the_time_goes() -> None:
    model = network()
    table = tangentlab.explain(model, X)
    assert table.share.sum() == pytest.approx(1)
    assert (table.operations > 0).all()
    assert (table.operations / table.operations.sum()).tolist() == pytest.approx(table.share.tolist())
    more = tangentlab.explain(model, X.repeat(4, 1, 1, 1))
    assert (more.operations > 3.9 * table.operations).all()
    assert set(table.form) <= {"compact", "late", "gradient"}
    share = table.groupby("layer").share.sum()
    assert share["2"] > share["8"]


def test_explain_knows_how_often_passes_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arrangement, "room_on_disk", lambda folder: 0)
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(400, 400) for _ in range(6)), nn.Linear(400, 1))
    x = torch.randn(2000, 400)
    roomy, tight = (tangentlab.explain(model, x, memory_budget=budget) for budget in ("1GiB", "44MiB"))
    assert roomy.attrs["passes"] == 1
    assert tight.attrs["passes"] > 1
    assert (tight.operations > roomy.operations).all()
    assert tight.share.sum() == pytest.approx(1)


def test_explain_charges_the_fallback_for_its_passes() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w, self.last = nn.Parameter(torch.ones(4, 4).double()), nn.Linear(4, 2).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(torch.cdist(x, self.w))

    table = tangentlab.explain(Odd(), torch.randn(5, 4).double()).set_index("layer")
    assert table.form["w"] == "fallback"
    share = table.share.groupby(level=0).sum()  # by the machine's rates, weight and bias have one row or two
    assert share["w"] > share["last"]
