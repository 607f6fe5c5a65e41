"""Measuring one kernel of a network of real size beside a plain training step and what a user would write."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.real_networks import NETWORKS

BATCHES = (4, 8, 16, 32)
"""Batch sizes of a training step, of which the fastest counts."""
SMALL = 2**28
"""Entries of gradients of all samples up to which calls are repeated and torch.func has one chunk."""


@dataclass(frozen=True)
class RealCase:
    """One measurement.

    Attributes:
        network: A key of :data:`NETWORKS`.
        samples: N.
        readout: The kernel's readout.
        budget: The memory budget.
        steps: The target, in training steps; None where there is none.
        peers: Whether the loop and torch.func are measured, too.
        entries: Random entries that are compared with plain automatic differentiation in float64.
        double: Whether the kernel is computed in float64, for its error alone.
    """

    network: str
    samples: int
    readout: str = "pntk"
    budget: str = "8GiB"
    steps: float | None = None
    peers: bool = False
    entries: int = 0
    double: bool = False

    @property
    def name(self) -> str:
        """What the case is called: network, N and budget."""
        return f"{self.network}/{self.samples}/{self.budget}"


def outputs(result: Any) -> Tensor:
    """Return the tensor of outputs."""
    return result if isinstance(result, Tensor) else result.logits


def some(x: Any, rows: slice) -> Any:
    """Return some of the samples."""
    return x[rows] if isinstance(x, Tensor) else {name: part[rows] for name, part in x.items()}


def call(model: nn.Module, x: Any) -> Tensor:
    """Return the outputs of a batch."""
    return outputs(model(x) if isinstance(x, Tensor) else model(**x))


def now() -> float:
    """Return the time in seconds, after a GPU has finished what it was given."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def step_seconds(model: nn.Module, x: Any, samples: int) -> float:
    """Return the time of a training step on all samples at the fastest batch size; beyond 64 it is extrapolated."""
    best, timed = float("inf"), min(samples, 64)
    for batch in (b for b in BATCHES if b <= max(timed, BATCHES[0])):
        start = now()
        for i in range(0, timed, batch):
            model.zero_grad()
            call(model, some(x, slice(i, min(i + batch, timed)))).sum().backward()
        best = min(best, now() - start)
    model.zero_grad(set_to_none=True)
    return best * samples / timed


def checked_seconds(model: nn.Module, x: Any, samples: int, step: float, calls: int) -> float:
    """Return the time of the plain passes that a kernel and its checks consist of: less is not possible with them.

    A step on all samples, as one pass, has the arithmetic of their passes and their gradients written out. The checks
    run two samples, and one to three samples alone, of which all gradients are computed. Nothing is recorded, compared
    or contracted.
    """
    from tangentlab.kernels._agreement import compared_samples

    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    seconds = [step]
    for count, backward, times in ((2, False, 1), (1, True, compared_samples(parameters, samples))):
        part = some(x, slice(0, count))

        def work(part: Any = part, backward: bool = backward) -> Tensor:
            y = call(model, part).sum()
            if backward:
                torch.autograd.grad(y, list(parameters.values()), allow_unused=True)
            return y

        seconds.append(times * timed(work, calls)[1])
    return sum(seconds)


def loop_kernel(model: nn.Module, x: Any, samples: int) -> Tensor:
    """Return the pNTK as a user would write it: one gradient per sample, rows stacked, one product."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    matrix = parameters[0].new_zeros(samples, sum(p.numel() for p in parameters))
    for i in range(samples):
        y = call(model, some(x, slice(i, i + 1)))
        grads = torch.autograd.grad(y.sum() / y.shape[1] ** 0.5, parameters, allow_unused=True)
        torch.cat(
            [(torch.zeros_like(p) if g is None else g).flatten() for p, g in zip(parameters, grads, strict=True)],
            out=matrix[i],
        )
    return matrix @ matrix.T


def func_kernel(model: nn.Module, x: Any, samples: int) -> Tensor:
    """Return the pNTK by torch.func: vmap of grad, in the largest chunks that fit."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def value(weights: dict[str, Tensor], one: Any) -> Tensor:
        one = some(one, None)  # type: ignore[arg-type]
        y = outputs(torch.func.functional_call(model, weights, *((one,), {}) if isinstance(one, Tensor) else ((), one)))
        return y.sum() / y.shape[1] ** 0.5

    size = sum(p.numel() for p in parameters.values())
    chunk = samples if samples * size < SMALL else 4
    grads = torch.func.vmap(torch.func.grad(value), (None, 0), chunk_size=chunk)(parameters, x)
    return torch.stack([g.flatten(1) @ g.flatten(1).T for g in grads.values()]).sum(0)


def random_entries(model: nn.Module, x: Any, case: RealCase, kernel: Tensor) -> float:
    """Return the largest error of some entries against plain differentiation in float64, over sqrt(K_ii K_jj)."""
    model = model.double()
    x = x.double() if isinstance(x, Tensor) else {k: v.double() if v.is_floating_point() else v for k, v in x.items()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    generator, worst = torch.Generator().manual_seed(1), 0.0

    def row(sample: int, readout: int) -> Tensor:
        one = some(x, slice(sample, sample + 1))
        y = call(model, one)[0]
        if case.readout == "next_token":
            value = -F.cross_entropy(y[:-1], one["input_ids"][0, 1:])
        else:
            value = y[readout] if case.readout == "full" else y.sum() / y.numel() ** 0.5
        found = torch.autograd.grad(value, parameters, allow_unused=True)
        return torch.cat([g.flatten() for g in found if g is not None])

    count = kernel.shape[1] if case.readout == "full" else 1
    matrix = kernel.reshape(case.samples * count, case.samples * count).double()
    for _ in range(case.entries):
        one, two = (int(torch.randint(len(matrix), (), generator=generator)) for _ in range(2))
        left, right = (row(*divmod(index, count)) for index in (one, two))
        error = abs(float(matrix[one, two]) - float(left @ right))
        worst = max(worst, error / float(left.norm() * right.norm()))
    return worst


def timed(work: Callable[[], Tensor], calls: int) -> tuple[Tensor, float]:
    """Return a result, and the time of the fastest of some calls."""
    best = float("inf")
    for _ in range(calls):
        start = now()
        result = work()
        best = min(best, now() - start)
    return result, best


def probe_seconds(model: nn.Module, x: Any, case: RealCase) -> float:
    """Return the time of a probe by itself, of which a kernel uses the second pass again."""
    from tangentlab.kernels.internal import Options, Problem, make_plan

    options = Options(case.readout, output=outputs, memory_budget=case.budget)
    start = now()
    make_plan(Problem.pose(model, x, options=options, kind="gram"))
    return now() - start


def measure(case: RealCase, device: str = "cpu") -> dict[str, Any]:
    """Measure one case in this process."""
    import tangentlab
    from tangentlab.kernels import _blocks

    torch.manual_seed(0)
    model, x = NETWORKS[case.network](case.samples)
    model.eval().to(device)
    x = x.to(device) if isinstance(x, Tensor) else {name: part.to(device) for name, part in x.items()}
    size = sum(p.numel() for p in model.parameters())
    calls = 5 if size * case.samples < SMALL else 2 if case.samples <= 32 else 1
    call(model, some(x, slice(0, 2)))
    step = 1.0 if case.double else step_seconds(model, x, case.samples)
    before = memory.start_watch()
    contracting = []

    def fill(*arguments: Any, original: Any = _blocks._fill) -> None:
        start = now()
        original(*arguments)
        contracting.append(now() - start)

    _blocks._fill = fill
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"dtype": torch.float64} if case.double else {}
        kernel, seconds = timed(
            lambda: tangentlab.ntk(
                model, x, readout=case.readout, output=outputs, memory_budget=case.budget, **options
            ),
            calls,
        )
    found: dict[str, Any] = {
        "parameters": size,
        "step": step,
        "ours": seconds / step,
        "contraction": sum(contracting) / calls / step,
        # Also the probe, whose batch is the first one, and the comparison of entries at the end.
        "passes": (seconds - sum(contracting) / calls) / step,
        "peak": (memory.peak() - before if device == "cpu" else torch.cuda.max_memory_allocated()) / memory.GIB,
        "fallback": any("fallback" in str(w.message) for w in caught),
    }
    if case.peers:
        found["probe"] = probe_seconds(model, x, case) / step
        found["plain"] = checked_seconds(model, x, case.samples, step, calls) / step
        # Gradients of all samples; torch.func joins those of its chunks.
        for name, peer, copies in (("loop", loop_kernel, 1.1), ("torch.func", func_kernel, 2.2)):
            if device == "cpu" and copies * 4 * size * case.samples > memory.available() / 0.75:
                found[name] = "does not fit"
                continue
            try:
                other, seconds = timed(partial(peer, model, x, case.samples), calls)
            except Exception as error:  # a peer that does not finish is a result
                found[name] = f"fails: {type(error).__name__}"
                continue
            found[name] = seconds / step
            found[f"{name} differs"] = float((other - kernel).norm() / kernel.norm())
    if case.entries:
        found["error"] = random_entries(model, x, case, kernel)
    return found
