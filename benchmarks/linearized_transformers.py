"""``python -m benchmarks.linearized_transformers``: what a step of linearized fine-tuning costs for BERT and ViT.

A step is one evaluation on a batch, the loss, and the gradient of all weights; the optimizer's update, equal for all,
is left out. Compared in one run, interleaved, on the same weights and inputs, all without dropout, which a
linearization does not have:

- plain: the network itself.
- tangentlab: ``linearize(network)``, with PyTorch's fast attention kernel.
- torch.func.jvp: outputs f0 + J d by ``torch.func.jvp`` without a graph, then one backward pass of the network; with
  attention's math backend, because the fast kernels have no forward mode.
- LinearizedModel: the construction published with task arithmetic in the tangent space (Ortiz-Jimenez et al. 2023),
  written from its definition: f0 + J d by ``jvp`` of the functional network at frozen weights, gradients by autograd
  through it; math backend.

A ratio is the median over rounds of a step's time divided by the plain step's time in the same round. All gradients are
compared before anything is timed.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.func import functional_call, jvp
from torch.nn.attention import SDPBackend, sdpa_kernel

from benchmarks.real_networks import NETWORKS
from tangentlab import linearize

LIMIT = 1.7


class Steps:
    """The four kinds of step on one problem."""

    def __init__(self, name: str, batch: int) -> None:
        torch.manual_seed(0)
        self.network, self.inputs = NETWORKS[name](batch)
        self.network.eval()
        self.labels = torch.randint(0, 2, (batch,))
        self.linearized = linearize(self.network)
        with torch.no_grad():
            for parameter in self.linearized.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=1e-3)
        self.base = {name: p.detach() for name, p in self.network.named_parameters()}
        self.theta = dict(self.linearized.named_parameters())

    def _loss(self, logits: Tensor) -> Tensor:
        return F.cross_entropy(logits, self.labels)

    def _step(self, model: Callable[..., Any], parameters: list[Tensor]) -> list[Tensor]:
        for parameter in parameters:
            parameter.grad = None
        self._loss(model(**self.inputs).logits).backward()
        return [p.grad for p in parameters if p.grad is not None]

    def plain(self) -> list[Tensor]:
        """Run the network's own step."""
        return self._step(self.network, list(self.network.parameters()))

    def tangentlab(self) -> list[Tensor]:
        """Run tangentlab's step."""
        return self._step(self.linearized, list(self.linearized.parameters()))

    def _jvp(self) -> tuple[Tensor, Tensor]:
        moved = {name: self.theta[name] - base for name, base in self.base.items()}
        with sdpa_kernel(SDPBackend.MATH):
            value, tangent = jvp(
                lambda w: functional_call(self.network, w, (), self.inputs).logits, (self.base,), (moved,)
            )
        return value, tangent

    def func_jvp(self) -> list[Tensor]:
        """Run torch.func.jvp without a graph, and a backward pass of the network."""
        with torch.no_grad():
            value, tangent = self._jvp()
        outputs = (value + tangent).requires_grad_()
        (cotangent,) = torch.autograd.grad(self._loss(outputs), outputs)
        logits = self.network(**self.inputs).logits
        return list(torch.autograd.grad(logits, list(self.network.parameters()), cotangent))

    def linearized_model(self) -> list[Tensor]:
        """Run autograd through jvp."""
        for parameter in self.theta.values():
            parameter.grad = None
        value, tangent = self._jvp()
        self._loss(value + tangent).backward()
        return [p.grad for p in self.theta.values() if p.grad is not None]


def measure(name: str, batch: int, rounds: int, peers: bool) -> dict[str, list[float]]:
    """Return the seconds of every round for every kind of step, after a round that compares the gradients."""
    steps = Steps(name, batch)
    kinds: dict[str, Callable[[], list[Tensor]]] = {"plain": steps.plain, "tangentlab": steps.tangentlab}
    if peers:
        kinds |= {"torch.func.jvp": steps.func_jvp, "LinearizedModel": steps.linearized_model}
    steps.plain()
    reference = [g.clone() for g in steps.tangentlab()]
    size = sum(float(g.double().square().sum()) for g in reference) ** 0.5
    for title, step in kinds.items():
        if title not in ("plain", "tangentlab"):
            pairs = zip(step(), reference, strict=True)
            error = sum(float((a - b).double().square().sum()) for a, b in pairs) ** 0.5 / size
            assert error < 1e-3, f"{title} differs from tangentlab by {error:.2g}"
    del reference
    seconds: dict[str, list[float]] = {title: [] for title in kinds}
    for round_ in range(rounds):
        for title in list(kinds) if round_ % 2 == 0 else reversed(list(kinds)):
            begin = time.perf_counter()
            kinds[title]()
            seconds[title].append(time.perf_counter() - begin)
    return seconds


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.linearized_transformers")
    parser.add_argument("--networks", nargs="+", default=["bert", "vit"], choices=list(NETWORKS), metavar="NAME")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="cores (default: all)")
    parser.add_argument("--no-peers", action="store_true", help="only plain and tangentlab")
    parser.add_argument("--strict", action="store_true", help=f"fail if a ratio is above {LIMIT}")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads, load before {os.getloadavg()[0]:.1f}.")
    worst = 0.0
    for name in options.networks:
        seconds = measure(name, options.batch, options.rounds, not options.no_peers)
        print(f"{name}, batch {options.batch}: median seconds, ratio to plain")
        for title, times in seconds.items():
            ratio = statistics.median(a / b for a, b in zip(times, seconds["plain"], strict=True))
            print(f"  {title:18s}{statistics.median(times):7.2f} s  {ratio:5.2f}", flush=True)
            worst = max(worst, ratio) if title == "tangentlab" else worst
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"Largest ratio of tangentlab: {worst:.2f} (limit {LIMIT}). Peak memory {peak:.1f} GiB.")
    return int(options.strict and worst > LIMIT)


if __name__ == "__main__":
    raise SystemExit(main())
