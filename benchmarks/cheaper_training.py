"""``python -m benchmarks.cheaper_training``: what three ways to train small networks cheaply gain.

- memory format: a step of a network, or of its linearization, with convolutions in channels_last instead of the usual
  order of axes.
- stacked: one step of k MLPs as one batched network (``torch.func.vmap`` over stacked weights) instead of k steps one
  after the other.
- shared passes: one step of k linearized models of one network on k tasks with the same minibatch
  (``LinearizedTasks(network, k)``) instead of k steps of ``linearize(network)``.

A gain is the median over rounds of the usual time divided by the cheaper one in the same round; both compute the same
gradients, which is checked before anything is timed. Steps include the update of SGD with momentum.
"""

import argparse
import copy
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from tangentlab import models
from tangentlab.linearized import LinearizedTasks, linearize

SHAPE = (3, 32, 32)
Step = Callable[[], None]


def loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Compute the mean sigmoid cross-entropy."""
    return F.binary_cross_entropy_with_logits(outputs.flatten(), targets.flatten())


def stepper(model: nn.Module, x: Tensor, y: Tensor, of: Callable[[Tensor, Tensor], Tensor] = loss) -> Step:
    """Return the usual training step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        of(model(x), y).backward()
        optimizer.step()

    return step


def formats(name: str, linear: bool, batch: int, width: float, options: dict[str, Any]) -> tuple[Step, Step]:
    """Return steps in both memory formats."""
    network = models.build(name, input_shape=SHAPE, outputs=1, width=width, seed=0, **options)
    x, y = torch.randn(batch, *SHAPE), (torch.rand(batch) > 0.5).float()
    steps, gradients = [], []
    for layout in (torch.contiguous_format, torch.channels_last):
        own = copy.deepcopy(network).to(memory_format=layout)  # type: ignore[call-overload]
        model = linearize(own.eval()) if linear else own.train()
        inputs = x.to(memory_format=layout)
        gradients.append(list(torch.autograd.grad(loss(model(inputs), y), list(model.parameters()))))
        steps.append(stepper(model, inputs, y))
    same(*gradients)
    return steps[0], steps[1]


def same(one: list[Tensor], two: list[Tensor]) -> None:
    """Compare gradients of two ways, in float32 and through BatchNorm."""
    for a, b in zip(one, two, strict=True):
        assert float((a - b).norm()) <= 2e-2 * float(a.norm()), "the two ways have different gradients"


def stacked(count: int, batch: int) -> tuple[Step, Step]:
    """Return the steps of several MLPs, one after the other and as one."""
    networks = [models.build("mlp", input_shape=SHAPE, outputs=1, seed=seed) for seed in range(count)]
    x, y = torch.randn(count, batch, *SHAPE), (torch.rand(count, batch) > 0.5).float()
    alone = [stepper(copy.deepcopy(network), x[i], y[i]) for i, network in enumerate(networks)]
    weights, buffers = stack_module_state(networks)
    weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.SGD(weights.values(), lr=1e-4, momentum=0.9)
    shell = copy.deepcopy(networks[0]).to("meta")
    apply = vmap(lambda w, b, inputs: functional_call(shell, (w, b), (inputs,)))

    def total() -> Tensor:
        return F.binary_cross_entropy_with_logits(apply(weights, buffers, x).flatten(), y.flatten()) * count

    found = torch.autograd.grad(total(), list(weights.values()))
    expected = []
    for i, network in enumerate(networks):
        expected.append(torch.autograd.grad(loss(network(x[i]), y[i]), list(network.parameters())))
    order = [name for name, _ in networks[0].named_parameters()]
    names = list(weights)
    same([torch.stack(g) for g in zip(*expected, strict=True)], [found[names.index(name)] for name in order])

    def all_at_once() -> None:
        optimizer.zero_grad(set_to_none=True)
        total().backward()
        optimizer.step()

    return in_turn(alone), all_at_once


def shared(name: str, count: int, batch: int, options: dict[str, Any]) -> tuple[Step, Step]:
    """Return the steps of linearized models of one network, one after the other and with shared passes."""
    network = models.build(name, input_shape=SHAPE, outputs=1, seed=0, **options).eval()
    x, targets = torch.randn(batch, *SHAPE), (torch.rand(count, batch) > 0.5).float()
    tasks, expected = LinearizedTasks(network, count), []

    def total(outputs: Tensor, y: Tensor) -> Tensor:
        return loss(outputs, y) * count

    for y in targets:
        model = linearize(network)
        expected.append(torch.autograd.grad(loss(model(x), y), list(model.parameters())))
    found = torch.autograd.grad(total(tasks(x), targets.T), list(tasks.parameters()))
    same([torch.stack(g) for g in zip(*expected, strict=True)], list(found))
    return in_turn([stepper(linearize(network), x, y) for y in targets]), stepper(tasks, x, targets.T, total)


def in_turn(steps: list[Step]) -> Step:
    """Return several steps as one."""

    def step() -> None:
        for each in steps:
            each()

    return step


def gain(pair: tuple[Step, Step], rounds: int) -> tuple[float, float, float]:
    """Measure; return both median times in milliseconds and the median gain."""
    times: list[tuple[float, ...]] = []
    for round_ in range(rounds + 2):
        both = []
        for step in pair:
            begin = time.perf_counter()
            step()
            both.append(time.perf_counter() - begin)
        if round_ >= 2:
            times.append(tuple(both))
    usual, cheaper = (1e3 * statistics.median(column) for column in zip(*times, strict=True))
    return usual, cheaper, statistics.median(a / b for a, b in times)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cheaper_training", description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--count", type=int, default=8, help="networks that are stacked, tasks that share a pass")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--out", type=Path, help="JSON file for the numbers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    average: dict[str, Any] = {"variant": "ortiz2021"}
    cases: dict[str, Callable[[], tuple[Step, Step]]] = {
        "channels_last, LeNet (average pooling)": lambda: formats("lenet", False, options.batch, 1, average),
        "channels_last, LeNet (max pooling)": lambda: formats("lenet", False, options.batch, 1, {}),
        "channels_last, linearized LeNet": lambda: formats("lenet", True, options.batch, 1, average),
        "channels_last, ResNet18 x0.25": lambda: formats("resnet18", False, options.batch, 0.25, {}),
        f"stacked, {options.count} MLPs": lambda: stacked(options.count, options.batch),
        f"shared passes, {options.count} tasks, linearized MLP": lambda: shared(
            "mlp", options.count, options.batch, {}
        ),
        f"shared passes, {options.count} tasks, linearized LeNet": lambda: shared(
            "lenet", options.count, options.batch, average
        ),
    }
    rows = []
    for title, build in cases.items():
        rounds = (
            max(3, options.rounds // 5) if "ResNet" in title or "tasks, linearized LeNet" in title else options.rounds
        )
        usual, cheaper, ratio = gain(build(), rounds)
        rows.append({"case": title, "usual_ms": usual, "cheaper_ms": cheaper, "gain": ratio})
        print(f"{title}: {usual:.1f} ms, {cheaper:.1f} ms, gain {ratio:.2f}", flush=True)
    if options.out is not None:
        options.out.write_text(json.dumps({"threads": options.threads, "batch": options.batch, "rows": rows}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
