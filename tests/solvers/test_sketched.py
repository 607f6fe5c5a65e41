"""Streaming regression in sketched feature space: equal to the regression that holds everything in memory."""

import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from tangentlab import TangentError, linalg, sketch
from tangentlab.solvers import sketched_regression
from tangentlab.solvers._normal import NormalEquations

CONTEXT = multiprocessing.get_context("spawn")
K, N = 48, 150


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 30), nn.Tanh(), nn.Linear(30, outputs)).eval()


def samples(count: int = N) -> tuple[Tensor, Tensor]:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(1))
    y = torch.stack([x[:, 0].sin() + x[:, 1], x[:, 2] * x[:, 3]], 1).double()
    return x, y


def fit(folder: Path | None = None, **options: Any) -> Any:
    x, y = samples()
    return sketched_regression(network(), x, y, **{"k": K, "chunk": 40, "folder": folder, "progress": False} | options)


def assert_equal(found: Any, expected: Any) -> None:
    for name in ("ridges", "leave_one_out", "gcv", "train", "degrees", "norms"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize("chunk", [7, 40, 1000])
def test_equal_to_the_path_of_the_sketched_kernel(chunk: int) -> None:
    x, y = samples()
    found = fit(chunk=chunk, ridges=[1e-3, 1e-1, 3.0])
    kernel = sketch(network(), x, K, progress=False)
    exact = kernel.features.double()
    path = linalg.ridge_path(exact @ exact.T, y, [1e-3, 1e-1, 3.0])
    for name in ("ridges", "leave_one_out", "gcv", "train", "degrees", "norms"):
        torch.testing.assert_close(getattr(found, name), getattr(path, name), rtol=1e-6, atol=1e-9)
    assert found.best == path.best
    new = torch.randn(9, 6)
    cross = sketch(network(), new, K, progress=False).features.double() @ exact.T
    for ridge in (None, 0.1):
        torch.testing.assert_close(
            found.predict(new, ridge), path.regression(ridge).predict(cross), rtol=1e-6, atol=1e-8
        )
    assert found.complete
    assert found.samples == N


def test_leave_one_out_is_what_it_says() -> None:
    x, y = samples(30)
    ridge = 0.5
    found = sketched_regression(network(), x, y[:, 0], 20, ridges=[ridge], progress=False)
    left_out = []
    for i in range(30):
        others = [j for j in range(30) if j != i]
        one = sketched_regression(network(), x[others], y[others, 0], 20, ridges=[ridge], progress=False)
        left_out.append(float(one.predict(x[i : i + 1]) - y[i, 0]) ** 2)
    assert float(found.leave_one_out) == pytest.approx(sum(left_out) / 30, rel=1e-5)
    assert found.predict(x).shape == (30,)


def test_several_readouts_a_prior_and_other_forms_of_samples() -> None:
    x, y = samples(40)
    y = torch.cat([y, y[:, :1]], 1)
    model = network()
    prior = model(x).detach()
    found = sketched_regression(model, x, y, 30, readout="full", f0=prior, chunk=16, ridges=[0.1], progress=False)
    features = sketch(model, x, 30, readout="full", progress=False).features.double()
    path = linalg.ridge_path(features @ features.T, (y - prior).reshape(-1), [0.1])
    torch.testing.assert_close(found.leave_one_out, path.leave_one_out, rtol=1e-6, atol=1e-9)
    assert found.predict(x, f0=prior).shape == (40, 3)
    with pytest.raises(TangentError, match="prior mean"):
        found.predict(x)
    data = sketched_regression(model, TensorDataset(x), y[:, 0], 30, chunk=16, ridges=[0.1], progress=False)
    plain = sketched_regression(model, x, y[:, 0], 30, ridges=[0.1], progress=False)
    torch.testing.assert_close(data.leave_one_out, plain.leave_one_out)


def test_milestones_predict_the_error() -> None:
    x, y = samples(3400)
    found = sketched_regression(network(), x, y, 24, chunk=200, progress=False)
    assert [milestone.samples for milestone in found.history] == [200, 400, 800, 1600, 3200]
    late = [milestone.error for milestone in found.history[-3:]]
    assert sum(late) / 3 == pytest.approx(float(found.leave_one_out.min()), rel=0.3)


def test_stops(tmp_path: Path) -> None:
    early = fit(tmp_path, chunk=10, seconds=0)
    assert not early.complete
    assert early.samples == 10
    assert "stopped early" in repr(early)
    target = fit(tmp_path, chunk=10, error=1e9)
    assert target.samples == 20
    assert_equal(fit(tmp_path, chunk=10), fit(chunk=10))


def slow(folder: Path) -> None:
    """A run that takes its time, so that it can be killed."""
    from tangentlab.solvers import _sketched

    made = _sketched.rows_of

    def slowly(x: Any, rows: range) -> Any:
        time.sleep(0.15)
        return made(x, rows)

    _sketched.rows_of, _sketched._SAVED = slowly, 0.0
    torch.set_num_threads(1)
    fit(folder, chunk=4)


def test_resumes_after_kill(tmp_path: Path) -> None:
    process = CONTEXT.Process(target=slow, args=(tmp_path,))
    process.start()
    while len(list(tmp_path.glob("features-*.npy"))) < 7 and process.is_alive():
        time.sleep(0.01)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    kept = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.glob("features-*.npy"))[:5]}
    assert_equal(fit(tmp_path, chunk=4), fit(chunk=4))
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "what was finished is not computed again"


def test_another_regression_is_refused(tmp_path: Path) -> None:
    fit(tmp_path)
    x, y = samples()
    for options, message in (({"k": 20}, "k: 48"), ({"seed": 1}, "seed: 0"), ({"chunk": 50}, "chunk: 40")):
        with pytest.raises(TangentError, match=message):
            fit(tmp_path, **options)
    arguments: dict[str, Any] = {"k": K, "chunk": 40, "folder": tmp_path, "progress": False}
    with pytest.raises(TangentError, match="targets: "):
        sketched_regression(network(), x, y + 1, **arguments)
    with pytest.raises(TangentError, match="features of samples 0 and 1 differ"):
        sketched_regression(network(), x.flip(0), y, **arguments)
    with pytest.raises(TangentError, match="weights: "):
        sketched_regression(network(4), x, y, **arguments)


def test_damage_is_found(tmp_path: Path) -> None:
    fit(tmp_path)
    file = tmp_path / "features-000001.npy"
    content = bytearray(file.read_bytes())
    content[200] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(TangentError, match="is damaged"):
        fit(tmp_path)
    (tmp_path / "normal.pt").write_bytes(b"nothing")
    with pytest.raises(TangentError, match="cannot be used"):
        fit(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ridges": [0.0, 1.0]}, "not positive"), ({"chunk": 0}, "The chunk is 0"), ({"k": 10**6}, "fewer than k")],
)
def test_refusals(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        fit(**options)


def test_refused_samples() -> None:
    with pytest.raises(TangentError, match="read part by part"):
        sketched_regression(network(), iter(()), [], K)


def test_nothing_to_fit() -> None:
    with pytest.raises(TangentError, match="all zero"):
        NormalEquations.empty(3, 1).decompose()
