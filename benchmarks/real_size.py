"""``python -m benchmarks.real_size``: kernels of networks of real size, in plain training steps.

Every measurement runs in a process of its own. In it, the same samples go through a plain training step (forward and
backward, at the fastest of several batch sizes), through ``tangentlab.ntk`` within a memory budget, and, where asked,
through what a user would write: a loop of one ``autograd.grad`` per sample with rows stacked and one product, and
``torch.func`` (vmap of grad). Times are given in steps, so that they can be compared between machines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks import memory
from benchmarks.measure import ROOT

BATCHES = (4, 8, 16, 32)
"""Batch sizes of a training step, of which the fastest counts."""


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
    """

    network: str
    samples: int
    readout: str = "pntk"
    budget: str = "8GiB"
    steps: float | None = None
    peers: bool = False
    entries: int = 0


def _tokens(samples: int, length: int, vocabulary: int) -> Tensor:
    return torch.randint(1, vocabulary, (samples, length), generator=torch.Generator().manual_seed(0))


def gpt2(samples: int) -> tuple[nn.Module, Any]:
    """Return GPT-2 (124 million parameters) with a head of ten outputs, and sequences of 64 tokens."""
    from transformers import GPT2Config, GPT2ForSequenceClassification

    model = GPT2ForSequenceClassification(GPT2Config(num_labels=10, pad_token_id=0))
    return model, {"input_ids": _tokens(samples, 64, 50257)}


def gpt2_short(samples: int) -> tuple[nn.Module, Any]:
    """Return GPT-2 and sequences of 32 tokens."""
    return gpt2(1)[0], {"input_ids": _tokens(samples, 32, 50257)}


def llama(samples: int) -> tuple[nn.Module, Any]:
    """Return a Llama-style decoder (135 million parameters), and sequences of 64 tokens."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    shape = {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30}
    heads = {"num_attention_heads": 9, "num_key_value_heads": 3}
    config = LlamaConfig(vocab_size=49152, num_labels=10, pad_token_id=0, **shape, **heads)
    return LlamaForSequenceClassification(config), {"input_ids": _tokens(samples, 64, 49152)}


def bert(samples: int) -> tuple[nn.Module, Any]:
    """Return BERT-base (109 million parameters) with two outputs, and sequences of 128 tokens."""
    from transformers import BertConfig, BertForSequenceClassification

    mask = torch.ones(samples, 128, dtype=torch.long)
    model = BertForSequenceClassification(BertConfig(num_labels=2))
    return model, {"input_ids": _tokens(samples, 128, 30522), "attention_mask": mask}


def vit(samples: int) -> tuple[nn.Module, Any]:
    """Return ViT-B/16 (86 million parameters) with ten outputs, and images of 224 x 224."""
    from transformers import ViTConfig, ViTForImageClassification

    images = torch.randn(samples, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    return ViTForImageClassification(ViTConfig(num_labels=10)), {"pixel_values": images}


def resnet50(samples: int) -> tuple[nn.Module, Any]:
    """Return ResNet50 for CIFAR-10 (24 million parameters), and images of 32 x 32."""
    from tangentlab import models

    images = torch.randn(samples, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    return models.build("resnet50", input_shape=(3, 32, 32), outputs=10, seed=0), images


NETWORKS: dict[str, Callable[[int], tuple[nn.Module, Any]]] = {
    "gpt2": gpt2,
    "gpt2-short": gpt2_short,
    "llama": llama,
    "bert": bert,
    "vit": vit,
    "resnet50": resnet50,
}
TARGETS = [
    RealCase("gpt2", 64, budget="8GiB", steps=3, entries=20),
    RealCase("gpt2", 256, budget="16GiB", steps=4.5),
    RealCase("gpt2", 256, budget="6GiB", steps=7),
    RealCase("llama", 64, budget="8GiB", steps=3, entries=20),
    RealCase("bert", 64, "full", budget="12GiB", steps=6, entries=20),
    RealCase("vit", 64, budget="12GiB", steps=4.5, entries=20),
    RealCase("resnet50", 256, budget="8GiB", steps=4, entries=20),
]
SWEEP = [
    RealCase(network, samples, budget="12GiB", peers=True)
    for network in ("gpt2", "llama", "bert", "vit", "resnet50")
    for samples in (2, 4, 8, 16, 32)
]
GROWTH = [RealCase("gpt2-short", samples, budget="12GiB") for samples in (125, 250, 500, 1000)]


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

    grads = torch.func.vmap(torch.func.grad(value), (None, 0), chunk_size=4)(parameters, x)
    matrix = torch.cat([g.flatten(1) for g in grads.values()], 1)
    return matrix @ matrix.T


def random_entries(model: nn.Module, x: Any, case: RealCase, kernel: Tensor) -> float:
    """Return the largest error of some entries against plain differentiation in float64, over sqrt(K_ii K_jj)."""
    model = model.double()
    x = x.double() if isinstance(x, Tensor) else {k: v.double() if v.is_floating_point() else v for k, v in x.items()}
    parameters = [p for p in model.parameters() if p.requires_grad]
    generator, worst = torch.Generator().manual_seed(1), 0.0

    def row(sample: int, readout: int) -> Tensor:
        y = call(model, some(x, slice(sample, sample + 1)))[0]
        value = y[readout] if case.readout == "full" else y.sum() / len(y) ** 0.5
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


def measure(case: RealCase, device: str = "cpu") -> dict[str, Any]:
    """Measure one case in this process."""
    import tangentlab

    torch.manual_seed(0)
    model, x = NETWORKS[case.network](case.samples)
    model.eval().to(device)
    x = x.to(device) if isinstance(x, Tensor) else {name: part.to(device) for name, part in x.items()}
    call(model, some(x, slice(0, 2)))
    step = step_seconds(model, x, case.samples)
    before = memory.start_watch()
    seconds = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2 if case.samples <= 32 else 1):
            start = now()
            kernel = tangentlab.ntk(model, x, readout=case.readout, output=outputs, memory_budget=case.budget)
            seconds.append(now() - start)
    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "step": step,
        "ours": min(seconds) / step,
        "peak": (memory.peak() - before if device == "cpu" else torch.cuda.max_memory_allocated()) / memory.GIB,
        "fallback": any("fallback" in str(w.message) for w in caught),
    }
    if case.peers:
        for name, peer in (("loop", loop_kernel), ("torch.func", func_kernel)):
            start = now()
            try:
                other = peer(model, x, case.samples)
            except Exception as error:  # a peer that does not finish is a result
                found[name] = f"fails: {type(error).__name__}"
                continue
            found[name] = (now() - start) / step
            found[f"{name} differs"] = float((other - kernel).norm() / kernel.norm())
    if case.entries:
        found["error"] = random_entries(model, x, case, kernel)
    return found


def show(value: Any) -> str:
    """Return a number or a reason as a cell of a table."""
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def main() -> None:
    """Run the cases that are asked for, each in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_size", description=__doc__)
    parser.add_argument("--suite", choices=["targets", "sweep", "growth"], default="targets")
    parser.add_argument("--only", nargs="*", help="Networks to measure.")
    parser.add_argument("--device", default="cpu", help="Where to compute: cpu or cuda.")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(RealCase(**json.loads(arguments.one)), arguments.device)))
        return
    where = f"{arguments.device}, {torch.get_num_threads()} threads"
    print(f"torch {torch.__version__}, {where}, float32; times in plain training steps\n")
    print("| network | N | readout | budget | step (s) | ours | target | peak GiB | loop | torch.func | error |")
    print("|---|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for case in {"targets": TARGETS, "sweep": SWEEP, "growth": GROWTH}[arguments.suite]:
        if arguments.only and case.network not in arguments.only:
            continue
        command = [sys.executable, "-m", "benchmarks.real_size", "--device", arguments.device]
        command += ["--one", json.dumps(asdict(case))]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode:
            print(f"| {case.network} | {case.samples} | failed: {(done.stderr.splitlines() or ['killed'])[-1][:80]} |")
            continue
        found = json.loads(done.stdout.splitlines()[-1])
        error = f"{found['error']:.1e}" if "error" in found else "-"
        cells = [case.network, case.samples, case.readout, case.budget, found["step"], found["ours"], case.steps]
        cells += [found["peak"], found.get("loop"), found.get("torch.func")]
        note = " (fallback)" if found["fallback"] else ""
        print("| " + " | ".join(map(show, cells)) + f" | {error}{note} |", flush=True)


if __name__ == "__main__":
    main()
