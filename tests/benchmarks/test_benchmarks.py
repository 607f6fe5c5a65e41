"""The benchmark harness at a tiny size, with the one peer that needs no environment of its own."""

import json
import math

import numpy as np
import pytest
import torch

import tangentlab
from benchmarks import environments, floor, least_time, measure, memory, parts_of_time, report, small_kernels
from benchmarks.__main__ import main, verdict
from benchmarks.cases import CASES, Problem
from benchmarks.compare import Comparison, _relative_error
from benchmarks.measure import Options, Outcome
from benchmarks.networks import load_network, make_problem, scalar_readout
from benchmarks.peers import OURS, PEERS, Unsuitable


def plain_kernel(problem: Problem) -> np.ndarray:
    """The kernel by one backward pass per sample and readout, in float64."""
    model = load_network(problem).double()
    values = scalar_readout(problem)(model(torch.from_numpy(problem.x).double())).flatten()
    parameters = list(model.parameters())
    rows = [
        torch.cat([part.flatten() for part in torch.autograd.grad(value, parameters, retain_graph=True)])
        for value in values
    ]
    jacobian = torch.stack(rows)
    return (jacobian @ jacobian.T).numpy()


@pytest.mark.parametrize("name", ["mlp", "lenet-10"])
def test_every_setting_of_torch_func_is_exact(name):
    problem = make_problem(CASES[name].with_samples(4))
    reference = plain_kernel(problem)
    peer = PEERS["torch.func"]
    for setting in peer.settings(problem.case):
        kernel = peer.canonical(problem, peer.prepare(problem, setting, 2**32)())
        assert np.linalg.norm(kernel - reference) < 1e-5 * np.linalg.norm(reference), setting


def test_a_jacobian_beyond_memory_is_refused_before_it_is_tried():
    problem = make_problem(CASES["mlp"].with_samples(4))
    with pytest.raises(Unsuitable, match="out of memory"):
        PEERS["torch.func"].prepare(problem, {"method": "vmap(jacrev)", "chunk": None}, 2**20)


def test_one_command_compares_and_agrees(tmp_path, capsys, monkeypatch):
    peer = PEERS["torch.func"]
    first = peer.settings(CASES["lenet-1"])[:1]  # each further one costs a process
    monkeypatch.setattr(type(peer), "settings", lambda self, case: first)
    record = tmp_path / "record.json"
    arguments = ["--cases", "lenet-1", "--samples", "6", "--repeats", "1", "--json", str(record)]
    assert main([*arguments, "--peers", "tangentlab", "torch.func"]) == 0
    printed = capsys.readouterr().out
    assert "LeNet-5, 1 output, N 6" in printed
    (comparison,) = json.loads(record.read_text())["comparisons"]
    assert set(comparison["finals"]) == {"tangentlab", "torch.func"}
    assert comparison["ratio"] > 0
    assert all(trial["status"] == "ok" for trial in comparison["trials"])
    assert comparison["finals"]["torch.func"]["error"] < 1e-5
    assert comparison["finals"]["torch.func"]["peak"] > 0


def test_disagreement_failure_and_a_missed_ratio_set_the_exit_code():
    case = CASES["mlp"]
    ours = Outcome(OURS, {}, "ok", [1.0])
    peer = Outcome("torch.func", {}, "ok", [1.5], error=1e-6)
    assert verdict([Comparison(case, [ours, peer], {OURS: ours, "torch.func": peer})], strict=False) == 0
    assert verdict([Comparison(case, [ours, peer], {OURS: ours, "torch.func": peer})], strict=True) == 1
    for error in (2e-3, math.nan, math.inf):
        wrong = Outcome("torch.func", {}, "ok", [1.5], error=error)
        assert verdict([Comparison(case, [ours, wrong], {})], strict=False) == 1
    assert verdict([Comparison(case, [Outcome(OURS, {}, "failed")], {})], strict=False) == 1


def test_relative_error_over_many_rows(tmp_path):
    rng = np.random.default_rng(0)
    one = rng.normal(size=(600, 600)).astype(np.float32)
    two = one + 1e-2 * rng.normal(size=one.shape).astype(np.float32)
    np.save(tmp_path / "one.npy", one)
    np.save(tmp_path / "two.npy", two)
    expected = np.linalg.norm(two - one) / np.linalg.norm(one)
    assert _relative_error(tmp_path / "two.npy", tmp_path / "one.npy") == pytest.approx(expected, rel=1e-4)


def test_a_call_past_its_limit_is_stopped(tmp_path):
    case = CASES["mlp"].with_samples(64)
    make_problem(case).save(tmp_path / "problem.npz")
    options = Options(repeats=1, threads=1, limit=1e-3, memory=memory.available())
    python = environments.interpreter(PEERS["torch.func"], print)
    setting = {"method": "vmap(jacrev)", "chunk": None}
    outcome = measure.run(
        python, "torch.func", setting, case, tmp_path / "problem.npz", tmp_path / "kernel.npy", options
    )
    assert outcome.status == "stopped"
    assert outcome.best == math.inf


def test_the_resnet_has_eleven_million_parameters_and_calibrated_norms():
    problem = make_problem(CASES["resnet18"].with_samples(2))
    assert problem.parameter_count == 11_173_962
    outputs = load_network(problem)(torch.from_numpy(problem.x)).detach().numpy()
    np.testing.assert_allclose(outputs, problem.y, rtol=1e-3, atol=1e-4)


def test_the_floor_makes_one_backward_pass_a_scalar(monkeypatch):
    case = CASES["lenet-10"].with_samples(6)
    model, x = least_time.network_and_inputs(case)
    calls = []
    real = torch.autograd.grad
    monkeypatch.setattr(
        torch.autograd, "grad", lambda *args, **kwargs: calls.append(len(args[1])) or real(*args, **kwargs)
    )
    least_time.passes(model, x, case, 4)
    assert calls == [5] * 20  # two convolutions and three dense layers; ten scalars, two batches


def test_floor_beside_a_record_of_peers(tmp_path, capsys):
    finals = {"tangentlab": {"seconds": [2.0]}, "slow": {"seconds": [30.0]}, "peer": {"seconds": [7.0, 6.0]}}
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"comparisons": [{"case": {"name": "mlp"}, "finals": finals}]}))
    assert floor.main(["--quick", "--repeats", "1", "--cases", "mlp", "--peers", str(record)]) == 0
    assert "| 3.0 " in capsys.readouterr().out  # the best peer over ours


def test_operations_a_pair_of_lenet():
    model = load_network(make_problem(CASES["lenet-1"].with_samples(1)))
    dense = (400 + 120) + (120 + 84) + (84 + 1)
    assert least_time.pair_operations(model) == 2 * (dense + 456 + 2416)
    dense = (400 + 100 * 120) + (120 + 100 * 84) + (84 + 100)
    assert least_time.pair_operations(model, 10, torch.zeros(1, 3, 32, 32)) == 2 * (dense + 100 * (456 + 2416))


def test_operations_a_pair_of_a_convolution_of_few_positions():
    model = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
    positions = 2 * (8 * 16**2 + 9 * 16 * 4**2)  # 4 x 4 pixels, 2 x 2 positions, three readouts
    assert least_time.pair_operations(model, 3, torch.zeros(1, 8, 4, 4)) == positions < 2 * 9 * 1152


def test_time_over_limit():
    case = CASES["mlp"].with_samples(16)
    limit = least_time.least_time(case, 1)
    assert limit.seconds == limit.passes + limit.operations / limit.rate
    assert limit.operations == 136 * 2 * (3172 + 200 + 101)
    ours = Outcome(OURS, {}, "ok", [3 * limit.seconds])
    comparison = Comparison(case, [ours], {OURS: ours}, limit=limit)
    assert comparison.over_limit == pytest.approx(3)
    assert "| 3.0 " in report.summary([comparison], [OURS])


def test_parts_of_time_sum_to_the_whole(capsys):
    case = CASES["mlp"].with_samples(32)
    whole, *shares, passes, products = parts_of_time.parts(case, 1)
    assert whole == pytest.approx(sum(shares))
    assert min(passes, products) > 0
    assert shares[0] > 0
    assert shares[2] > 0
    assert parts_of_time.main(["--quick", "--repeats", "1", "--cases", "mlp"]) == 0
    assert "time over limit" in capsys.readouterr().out


def test_small_kernels_agree(capsys):
    model, x = least_time.network_and_inputs(CASES["lenet-10"].with_samples(4))
    expected = tangentlab.ntk(model, x, readout="pntk")
    for kernel in (small_kernels.by_loop, small_kernels.by_torch_func):
        torch.testing.assert_close(kernel(model, x), expected, rtol=1e-3, atol=1e-4)
    assert small_kernels.main(["--cases", "mlp", "--sizes", "2", "--repeats", "1"]) == 0
    assert capsys.readouterr().out.count("mlp") == 1
