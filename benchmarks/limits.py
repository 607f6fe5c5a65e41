"""``python -m benchmarks.limits``: the targets of the kernel engine, measured on this machine.

- factors: computing factors against a plain training step on the same samples, per backward pass;
- contraction: its rate as a share of the machine's own float32 GEMM rate;
- growth: time from N to 2 N samples;
- memory: peak memory against the budget asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.cases import CASES
from benchmarks.least_time import best_of, gemm_rate, network_and_inputs, pair_operations
from benchmarks.measure import Options, run, stop_cleanly
from benchmarks.networks import make_problem
from benchmarks.peers import OURS
from benchmarks.report import machine, table


@dataclass(frozen=True)
class Check:
    """One target and its measured value.

    Attributes:
        limit: The target.
        subject: on what.
        found: the measured number.
        bound: The value of the target.
        at_most: whether ``found`` must stay below ``bound`` (else above).
        detail: how ``found`` came about.
    """

    limit: str
    subject: str
    found: float
    bound: float
    at_most: bool
    detail: str

    @property
    def met(self) -> bool:
        """Whether the target is met."""
        return self.found <= self.bound if self.at_most else self.found >= self.bound


# The engine's own parts: the only lines here that know more of tangentlab than its public API.


def engine_factors(model: nn.Module, x: Tensor, readout: str) -> Any:
    """Compute the factors of all samples, including the probe of the network."""
    from tangentlab.kernels import compute_factors

    return compute_factors(model, x, readout)


def engine_batch_size(model: nn.Module, x: Tensor, readout: str) -> int:
    """Return the number of samples per forward pass that the engine chooses, seen from outside."""
    sizes = [1]
    watch = model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    engine_factors(model, x, readout)
    watch.remove()
    return max(sizes)


def engine_contraction(factors: Any, kernel: Tensor) -> None:
    """Fill a kernel from factors, one triangle computed and mirrored."""
    from tangentlab.kernels._contract import contract

    contract(factors, factors, kernel, True, lambda *_: None)


def training_step(model: nn.Module, x: Tensor, batch: int) -> None:
    """Run forward pass, loss and backward pass to every parameter, in training mode, over all samples; no optimizer
    step."""
    model.train()
    for part in x.split(batch):
        outputs = model(part)
        if outputs.shape[1] == 1:
            loss = outputs.square().mean()
        else:
            loss = nn.functional.cross_entropy(outputs, torch.zeros(len(part), dtype=torch.long))
        loss.backward()
        model.zero_grad(set_to_none=True)
    model.eval()


def factor_cost(repeats: int, quick: bool) -> Iterator[Check]:
    """Measure the factors of one readout against one training step."""
    for name, bound in (("mlp", 1.5), ("lenet-1", 1.5), ("resnet18", 2.0)):
        case = CASES[name]
        case = case.with_samples(case.quick_samples) if quick else case
        model, x = network_and_inputs(case)
        trained, _ = network_and_inputs(case.with_samples(1))
        batch = engine_batch_size(model, x, case.readout)
        ours, step = best_of(
            repeats,
            lambda model=model, x=x, case=case: engine_factors(model, x, case.readout),
            lambda trained=trained, x=x, batch=batch: training_step(trained, x, batch),
        )
        passes = case.readouts
        detail = f"factors {ours:.3f} s, step {step:.3f} s, batches of {batch}"
        yield Check("factors / training step", case.title, ours / step / passes, bound, True, detail)


def contraction_rate(repeats: int, quick: bool) -> Iterator[Check]:
    """Measure the contraction of LeNet's factors as a share of the GEMM rate; only the upper triangle counts as
    work."""
    case = CASES["lenet-1"].with_samples(2_000 if quick else 20_000)
    model, x = network_and_inputs(case)
    factors = engine_factors(model, x, case.readout)
    kernel = torch.empty(case.samples, case.samples)
    pairs = case.samples * (case.samples + 1) // 2
    (seconds,) = best_of(max(1, repeats // 2), lambda: engine_contraction(factors, kernel))
    rate, own = pairs * pair_operations(model) / seconds, gemm_rate(repeats)
    detail = f"{rate / 1e9:.0f} of {own / 1e9:.0f} GFLOP/s, {seconds:.2f} s"
    yield Check("contraction / GEMM rate", case.title, rate / own, 0.6, False, detail)


def growth(repeats: int, quick: bool) -> Iterator[Check]:
    """Measure the time of the whole kernel when the number of samples doubles."""
    import tangentlab

    small, large = (1_000, 2_000) if quick else (10_000, 20_000)
    case = CASES["lenet-1"].with_samples(large)
    model, x = network_and_inputs(case)
    times = best_of(
        max(1, repeats // 2),
        lambda: tangentlab.ntk(model, x[:small], readout=case.readout, progress=False),
        lambda: tangentlab.ntk(model, x, readout=case.readout, progress=False),
    )
    detail = f"N {small}: {times[0]:.2f} s, N {large}: {times[1]:.2f} s"
    yield Check("time, N to 2 N", case.title, times[1] / times[0], 4.3, True, detail)


BUDGETS = (
    ("mlp", 4000, ("128MiB", "512MiB")),
    ("lenet-1", 4000, ("128MiB", "256MiB", "1GiB")),
    ("lenet-10", 300, ("256MiB", "1GiB")),
    ("fcn", 200, ("128MiB", "512MiB")),
    ("resnet18", 32, ("1GiB", "2GiB")),
)
"""Case, number of samples and the budgets tried."""


def memory_budget(repeats: int, quick: bool, threads: int) -> Iterator[Check]:
    """Measure the peak resident memory of a fresh process, above what network and inputs take, against the budget."""
    options = Options(repeats=1, threads=threads, limit=600.0, memory=memory.available())
    with tempfile.TemporaryDirectory(prefix="tangentlab-limits-") as name:
        folder = Path(name)
        for key, samples, budgets in BUDGETS:
            case = CASES[key].with_samples(samples // 4 if quick else samples)
            make_problem(case).save(folder / "problem.npz")
            for budget in budgets:
                setting = {"memory_budget": budget}
                outcome = run(
                    Path(sys.executable), OURS, setting, case, folder / "problem.npz", folder / "kernel.npy", options
                )
                if outcome.status != "ok" or outcome.peak is None:
                    yield Check(
                        "peak memory / budget", case.title, float("nan"), 1.1, True, f"{budget}: {outcome.note}"
                    )
                    continue
                asked = float(budget[:-3]) * {"M": 2**20, "G": 2**30}[budget[-3]]
                detail = f"{outcome.peak / 2**20:.0f} MiB of {budget}, {outcome.best:.2f} s"
                yield Check("peak memory / budget", case.title, outcome.peak / asked, 1.1, True, detail)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, return 1 if a limit is missed."""
    limits = ("factors", "contraction", "growth", "memory")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.limits", description="The engine's stated limits.")
    parser.add_argument("--only", nargs="+", choices=limits, default=limits, help="default: all")
    parser.add_argument("--repeats", type=int, default=5, help="timed calls, of which the best counts")
    parser.add_argument("--quick", action="store_true", help="few samples: a check of the harness, not a result")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number there")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    about = machine(options.threads)
    if about["load_average"] > 0.5:
        print(f"the machine is busy (load {about['load_average']:.1f}): do not trust this run", file=sys.stderr)

    measurements: dict[str, Callable[[], Iterator[Check]]] = {
        "factors": lambda: factor_cost(options.repeats, options.quick),
        "contraction": lambda: contraction_rate(options.repeats, options.quick),
        "growth": lambda: growth(options.repeats, options.quick),
        "memory": lambda: memory_budget(options.repeats, options.quick, options.threads),
    }
    checks: list[Check] = []
    for name in limits:
        if name in options.only:
            for check in measurements[name]():
                print(f"{check.limit}, {check.subject}: {check.found:.2f} ({check.detail})", file=sys.stderr)
                checks.append(check)
    rows = [
        [
            check.limit,
            check.subject,
            f"{check.found:.2f}",
            f"{'at most' if check.at_most else 'at least'} {check.bound:g}",
            "met" if check.met else "MISSED",
            check.detail,
        ]
        for check in checks
    ]
    print(table(["limit", "case", "measured", "target", "verdict", "detail"], rows))
    if options.json:
        content = {"machine": about, "checks": [asdict(check) | {"met": check.met} for check in checks]}
        options.json.write_text(json.dumps(content, indent=1) + "\n")
    return 0 if all(check.met for check in checks) else 1


if __name__ == "__main__":
    stop_cleanly()
    sys.exit(main())
