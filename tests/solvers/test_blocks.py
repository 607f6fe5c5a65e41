"""Block coordinate descent: equal to the regression with the whole kernel, in every form of the kernel."""

import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tangentlab import NTKOperator, TangentError, linalg, ntk, store
from tangentlab.solvers import block_regression
from tangentlab.solvers._access import Entries, InTiles, InWeights

CONTEXT = multiprocessing.get_context("spawn")
N = 60


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, outputs)).double().eval()


def samples(count: int = N) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x, torch.stack([x[:, 0].sin() + x[:, 1], x[:, 2] * x[:, 3], x[:, 4].cos()], 1)


def operator(readout: str = "pntk", **options: Any) -> NTKOperator:
    return NTKOperator(network(), samples()[0], readout=readout, **options)


def fit(kernel: Any, y: Any = None, **options: Any) -> Any:
    defaults = {"block": 20, "ridge": 0.3, "progress": False}
    return block_regression(kernel, samples()[1] if y is None else y, **defaults | options)


@pytest.mark.parametrize("readout", ["pntk", "full"])
@pytest.mark.parametrize("form", ["weights", "tiles", "recomputed", "matrix"])
def test_equal_to_regression_with_the_whole_kernel(readout: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = samples()
    new = torch.randn(7, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    kernel, cross = ntk(network(), x, readout=readout), ntk(network(), new, x, readout=readout)
    prior, prior_new = network()(x).detach(), network()(new).detach()
    exact = linalg.regress(kernel, y, f0=prior, ridge=0.3)
    wanted = exact.predict(cross, f0=prior_new)
    cheaper = form != "tiles"
    monkeypatch.setattr("tangentlab.kernels._rows.RowAccess.cheaper_by_weights", lambda self, columns: cheaper)
    source: Any = operator(readout)
    if form == "recomputed":
        source._products = type(source._products)(source._products.plan, source._products.budget, {})
    found = fit(kernel if form == "matrix" else source, f0=prior)
    kind = {"weights": InWeights, "tiles": InTiles, "recomputed": InWeights, "matrix": Entries}[form]
    assert type(found._access) is kind
    assert found.stopped == "tolerance"
    assert found.residual <= 1e-10
    assert found.passes > 2
    torch.testing.assert_close(found.coefficients, exact.coefficients, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.norm, exact.norm, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(found.predict(cross if form == "matrix" else new, prior_new), wanted)
    assert found.effective_ridge == pytest.approx(0.3, abs=1e-8)
    with pytest.raises(TangentError, match="prior mean"):
        found.predict(cross if form == "matrix" else new)


def test_no_ridge_and_single_targets() -> None:
    generator = torch.Generator().manual_seed(3)
    features = torch.randn(80, 400, generator=generator, dtype=torch.float64)
    kernel, y = features @ features.T, torch.randn(80, generator=generator, dtype=torch.float64)
    exact = linalg.regress(kernel, y)
    for block in (17, 80):
        found = fit(kernel, y, ridge=0, block=block)
        torch.testing.assert_close(found.coefficients, exact.coefficients, rtol=1e-8, atol=1e-10)
        assert found.predict(kernel).shape == (80,)
    assert found.passes == 1, "one block is solved directly"
    small = fit(kernel * 1e-200, y * 1e-100, ridge=0, block=17)
    torch.testing.assert_close(small.coefficients / 1e100, exact.coefficients, rtol=1e-8, atol=1e-10)


def test_stored_kernels(tmp_path: Path) -> None:
    x, y = samples()
    kernel = store.compute(network(), x, tmp_path / "kernel.zarr", readout="pntk", tile=16, progress=False)
    exact = linalg.regress(kernel, y, ridge=0.3)
    loaded, streamed = fit(kernel), fit(kernel, memory_budget=56_000, block=32)
    assert loaded._access.unit == 1
    assert streamed._access.unit == 8, "rows that are read together"
    part = fit(linalg.Part(kernel, 0, 40), y[:40], memory_budget=25_000, block=16)
    for found, wanted in (
        (loaded, exact),
        (streamed, exact),
        (part, linalg.regress(ntk(network(), x[:40], readout="pntk"), y[:40], ridge=0.3)),
    ):
        torch.testing.assert_close(found.coefficients, wanted.coefficients, rtol=1e-7, atol=1e-8)


def test_other_forms_of_samples_and_single_precision() -> None:
    x, y = samples()
    data = TensorDataset(x.float(), y)
    found = fit(NTKOperator(network().float(), data, readout="pntk"))
    exact = linalg.regress(ntk(network(), x, readout="pntk"), y, ridge=0.3)
    assert found.residual <= 1e-4
    torch.testing.assert_close(found.coefficients, exact.coefficients, rtol=1e-2, atol=1e-3)
    wanted = exact.predict(ntk(network(), x[:5], x, readout="pntk"))
    torch.testing.assert_close(found.predict(TensorDataset(x[:5].float(), y[:5])), wanted, rtol=1e-2, atol=1e-3)


def test_stops(tmp_path: Path) -> None:
    x, y = samples()
    early = fit(operator(), seconds=0, folder=tmp_path)
    assert early.stopped == "time"
    assert early.effective_ridge > early.ridge, "what was not learned acts like a ridge"
    with pytest.warns(RuntimeWarning, match="after 2 passes"):
        few = fit(operator(), passes=2, validation=(x, y))
    assert [each.number for each in few.history] == [1, 2]
    gap = few.predict(x) - y
    assert few.history[-1].error == pytest.approx(float(gap.square().mean()), rel=1e-9)
    assert len(few.table) == 2
    assert "stopped by passes" in repr(few)
    target = fit(operator(), validation=(x, y), error=few.history[1].error * 1.0001)
    assert (target.stopped, target.passes) == ("error", 2)
    resumed = fit(operator(), folder=tmp_path)
    assert resumed.stopped == "tolerance"
    again = fit(operator(), folder=tmp_path)
    assert again.passes == resumed.passes, "what is finished is not computed again"


def slow(folder: Path) -> None:
    """A run that takes its time, so that it can be killed."""
    from tangentlab.solvers import _block_state, _descent

    solved = _descent.Descent._solved

    def slowly(self: Any, gram: Tensor, gap: Tensor) -> Tensor:
        time.sleep(0.05)
        return solved(self, gram, gap)

    _descent.Descent._solved, _block_state._SAVED = slowly, 0.0  # type: ignore[method-assign]
    torch.set_num_threads(1)
    fit(operator(), folder=folder)


def test_resumes_after_kill(tmp_path: Path) -> None:
    process = CONTEXT.Process(target=slow, args=(tmp_path,))
    process.start()
    file = tmp_path / "descent.pt"

    def done() -> int:
        state = torch.load(file)["state"] if file.exists() else {"passes": 0}
        return int(state["passes"])

    while done() < 2 and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = done()
    assert kept >= 2
    resumed, whole = fit(operator(), folder=tmp_path), fit(operator())
    assert resumed.passes == whole.passes
    torch.testing.assert_close(resumed.coefficients, whole.coefficients, rtol=1e-9, atol=1e-10)


def test_another_regression_is_refused(tmp_path: Path) -> None:
    x, y = samples()
    fit(operator(), folder=tmp_path)
    for options, message in (({"ridge": 0.4}, "ridge: 0.3"), ({"block": 30}, "block: 20"), ({"seed": 1}, "seed: 0")):
        with pytest.raises(TangentError, match=message):
            fit(operator(), folder=tmp_path, **options)
    with pytest.raises(TangentError, match="targets: "):
        fit(operator(), y + 1, folder=tmp_path)
    with pytest.raises(TangentError, match="diagonals"):
        fit(NTKOperator(network(), x.flip(0), readout="pntk"), folder=tmp_path)
    (tmp_path / "descent.pt").write_bytes(b"no")
    with pytest.raises(TangentError, match="cannot be used"):
        fit(operator(), folder=tmp_path)


def test_refusals() -> None:
    x, y = samples()
    kernel = ntk(network(), x, readout="pntk")
    twice = torch.cat([x, x])
    singular = ntk(network(), twice, readout="pntk")
    cases: tuple[tuple[str, Any, Any, dict[str, Any]], ...] = (
        ("not a nonnegative", kernel, y, {"ridge": -1.0}),
        ("do not fit", kernel, y[:-1], {}),
        ("class numbers", kernel, torch.arange(N) % 5, {}),
        ("not finite", kernel, y * np.nan, {}),
        ("not positive definite", singular, torch.cat([y, y]), {"ridge": 0, "block": 110}),
        ("cannot be read", aslinearoperator(kernel.numpy()), y, {}),
        ("too small", operator(), y, {"memory_budget": "10KiB"}),
        ("no validation samples", kernel, y, {"error": 0.1}),
        ("validation= does not fit", kernel, y, {"validation": (kernel, y, y)}),
        ("validation targets", kernel, y, {"validation": (kernel, y[:, :2])}),
        ("Every sample", kernel, y, {"validation": (kernel, y[:7])}),
        ("tolerance", kernel, y, {"tolerance": 2.0}),
        ("positive whole number", kernel, y, {"passes": 0}),
        ("positive number of rows", kernel, y, {"block": 0}),
        ("not square", NTKOperator(network(), x, x[:5]), y, {}),
        ("tolerance", kernel, y, {"tolerance": "small"}),
        ("seconds='1h' is not", kernel, y, {"seconds": "1h"}),
        ("seconds=nan is not", kernel, y, {"seconds": np.nan}),
        ("error=-1 is not", kernel, y, {"error": -1, "validation": (kernel, y)}),
        ("seed=1.5 is not", kernel, y, {"seed": 1.5}),
        ("targets are not finite", kernel, y, {"validation": (kernel, y * np.nan)}),
        ("predictions on the validation", kernel, y, {"validation": (kernel * np.nan, y)}),
        ("shape of f0", kernel, y, {"f0": y, "validation": (kernel, y, y[:, :2])}),
        ("not numbers", kernel, y, {"f0": y, "validation": (kernel, y, None)}),
        ("validation targets have", kernel, y, {"validation": (kernel[:0], y[:0])}),
        ("60 columns", kernel, y, {"validation": (kernel[:, :5], y)}),
    )
    for message, source, targets, options in cases:
        with pytest.raises(TangentError, match=message):
            fit(source, targets, **options)


def test_blocks_of_an_operator() -> None:
    x, _ = samples()
    for readout in ("pntk", "full"):
        made = operator(readout)
        kernel = ntk(network(), x, readout=readout)
        rows, columns = [4, 1, 50], torch.tensor([7, 4])
        wanted = (
            kernel[rows][..., columns] if readout == "pntk" else kernel[rows][:, :, columns].flatten(2).flatten(0, 1)
        )
        torch.testing.assert_close(made.block(rows, columns), wanted)
        own = made.block(rows)
        assert torch.equal(own, own.T)
        for bad in ([], [60], [-1]):
            with pytest.raises(TangentError, match="no such block"):
                made.block(bad)
        others: list[Any] = [torch.arange(N) < 3, [1.5], torch.ones(2), [[1, 2]], 3, slice(0, 3), "12", None]
        for wrong in others:
            with pytest.raises(TangentError, match="not a list of whole numbers"):
                made.block(wrong)
            if wrong is not None:
                with pytest.raises(TangentError, match="not a list of whole numbers"):
                    made.block([1], wrong)
