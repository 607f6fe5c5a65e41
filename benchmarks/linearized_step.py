"""``python -m benchmarks.linearized_step``: what a training step of a linearized model costs.

A step is one evaluation of the model on a batch, the loss, and the gradient of all weights; the optimizer's update,
equal for all, is left out. Compared in one run, interleaved, on the same weights and inputs:

- plain: the network itself, in training mode.
- tangentlab: ``linearize(network)``.
- torch.func.jvp: the usual construction. Outputs f0 + J d by ``torch.func.jvp``, gradients by autograd through it.
- backward per output: outputs by ``torch.func.jvp`` without a graph, then one backward pass of the network for each
  output, summed. What several outputs cost when each has its own backward pass (samarin2022, section 3).

A ratio is the median over rounds of a step's time divided by the plain step's time in the same round, so that what
else the machine does falls on both. All gradients are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, jvp

from tangentlab import models
from tangentlab.linearized import linearize

LIMIT = 1.6


@dataclass(frozen=True)
class Case:
    """A network and a batch."""

    title: str
    network: str
    outputs: int
    batch: int
    rounds: int
    options: tuple[tuple[str, str], ...] = ()
    per_output: bool = False

    def build(self) -> nn.Module:
        """Build the network, from a fixed seed."""
        return models.build(self.network, input_shape=(3, 32, 32), outputs=self.outputs, seed=0, **dict(self.options))


AVERAGE, MAXIMUM = (("variant", "ortiz2021"),), (("variant", "samarin2022"),)
CASES = [
    Case("LeNet, 1 output, batch 128, average pooling", "lenet", 1, 128, 60, AVERAGE),
    Case("LeNet, 10 outputs, batch 128, average pooling", "lenet", 10, 128, 60, AVERAGE, True),
    Case("LeNet, 1 output, batch 128, max pooling", "lenet", 1, 128, 60, MAXIMUM),
    Case("LeNet, 10 outputs, batch 128, max pooling", "lenet", 10, 128, 60, MAXIMUM, True),
    Case("ResNet18, 1 output, batch 16", "resnet18", 1, 16, 12),
    Case("ResNet18, 10 outputs, batch 16", "resnet18", 10, 16, 12, (), True),
]


class Steps:
    """The four kinds of step on one problem."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(1)
        self.inputs = torch.randn(case.batch, 3, 32, 32)
        self.labels = torch.randint(0, max(case.outputs, 2), (case.batch,))
        self.network = case.build()
        self.frozen = copy.deepcopy(self.network).eval()
        self.linearized = linearize(self.network)
        with torch.no_grad():
            for parameter in self.linearized.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=1e-3)
        self.base = {name: p.detach().clone() for name, p in self.frozen.named_parameters()}
        self.theta = {name: p.detach().clone().requires_grad_() for name, p in self.linearized.named_parameters()}

    def loss(self, outputs: Tensor) -> Tensor:
        """Compute sigmoid or softmax cross-entropy."""
        if outputs.shape[1] == 1:
            return F.binary_cross_entropy_with_logits(outputs[:, 0], self.labels.to(outputs))
        return F.cross_entropy(outputs, self.labels)

    def plain(self) -> list[Tensor]:
        """Run the network's own step."""
        self.network.zero_grad()
        self.loss(self.network(self.inputs)).backward()
        return [p.grad for p in self.network.parameters() if p.grad is not None]

    def tangentlab(self) -> list[Tensor]:
        """Run tangentlab's step."""
        self.linearized.zero_grad()
        self.loss(self.linearized(self.inputs)).backward()
        return [p.grad for p in self.linearized.parameters() if p.grad is not None]

    def usual(self) -> list[Tensor]:
        """Run autograd through ``torch.func.jvp``."""
        for parameter in self.theta.values():
            parameter.grad = None
        primal, tangent = self._jvp()
        self.loss(primal + tangent).backward()
        return [p.grad for p in self.theta.values() if p.grad is not None]

    def per_output(self) -> list[Tensor]:
        """Run one backward pass per output."""
        with torch.no_grad():
            primal, tangent = self._jvp()
        outputs = (primal + tangent).requires_grad_()
        (cotangent,) = torch.autograd.grad(self.loss(outputs), outputs)
        leaves = [value.clone().requires_grad_() for value in self.base.values()]
        value = functional_call(self.frozen, dict(zip(self.base, leaves, strict=True)), (self.inputs,))
        total = [torch.zeros_like(leaf) for leaf in leaves]
        for k in range(value.shape[1]):
            grads = torch.autograd.grad(value[:, k], leaves, cotangent[:, k], retain_graph=True)
            for part, grad in zip(total, grads, strict=True):
                part += grad
        return total

    def _jvp(self) -> tuple[Tensor, Tensor]:
        displacement = {name: self.theta[name] - self.base[name] for name in self.base}

        def network(weights: dict[str, Tensor]) -> Tensor:
            return functional_call(self.frozen, weights, (self.inputs,))

        primal, tangent = jvp(network, (self.base,), (displacement,))
        return primal, tangent


def measure(case: Case, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of every round for every kind of step, after a warm-up round that compares the gradients."""
    steps = Steps(case)
    kinds: dict[str, Callable[[], list[Tensor]]] = {
        "plain": steps.plain,
        "tangentlab": steps.tangentlab,
        "torch.func.jvp": steps.usual,
    }
    if case.per_output:
        kinds["backward per output"] = steps.per_output
    steps.plain()
    reference = torch.cat([g.reshape(-1) for g in steps.tangentlab()])
    for name, step in kinds.items():
        if name not in ("plain", "tangentlab"):
            error = (torch.cat([g.reshape(-1) for g in step()]) - reference).norm() / reference.norm()
            assert error < 1e-4, f"{name} differs from tangentlab by {error:.2g} on {case.title}"
    seconds: dict[str, list[float]] = {name: [] for name in kinds}
    for round_ in range(rounds):
        names = list(kinds)
        if round_ % 2:
            names.reverse()
        for name in names:
            begin = time.perf_counter()
            kinds[name]()
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def ratio(seconds: dict[str, list[float]], name: str) -> float:
    """Return the median over rounds of the ratio to the plain step."""
    pairs = zip(seconds[name], seconds["plain"], strict=True)
    return statistics.median(step / plain for step, plain in pairs)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linearized_step", description=__doc__.split("\n\n")[1])
    parser.add_argument("--rounds", type=int, help="instead of each case's own")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="cores (default: all)")
    parser.add_argument("--cases", nargs="+", metavar="TEXT", help="only cases whose title contains one of these")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    parser.add_argument("--strict", action="store_true", help=f"fail if a ratio is above {LIMIT}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {options.threads} threads, load before {load:.1f}. Median ms, ratio to plain.")
    worst, record = 0.0, {}
    for case in CASES:
        if options.cases and not any(text.lower() in case.title.lower() for text in options.cases):
            continue
        seconds = measure(case, options.rounds or case.rounds)
        record[case.title] = seconds
        print(case.title)
        for name, times in seconds.items():
            factor = ratio(seconds, name)
            print(f"  {name:22s}{1e3 * statistics.median(times):9.1f} ms  {factor:6.2f}", flush=True)
        worst = max(worst, ratio(seconds, "tangentlab"))
    print(f"Largest ratio of tangentlab: {worst:.2f} (limit {LIMIT}).")
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "load": load, "seconds": record}, indent=1))
    return int(options.strict and worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
