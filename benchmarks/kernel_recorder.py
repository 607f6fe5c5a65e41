"""``python -m benchmarks.kernel_recorder``: what watching the kernel adds to training.

LeNet is trained for some epochs on random images of CIFAR's shape, with and without a ``finetune.KernelRecorder`` that
measures everything on 100 probe samples after every epoch. Reported is the median time of an epoch with its record,
divided by that of an epoch without; the record before training, which also compares the kernel with plain
differentiation, is reported by itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch

from tangentlab import models
from tangentlab.finetune import KernelRecorder

LIMIT = 1.2


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_recorder")
    parser.add_argument("--samples", type=int, nargs="+", default=[2000, 5000, 10000], help="training samples")
    parser.add_argument("--probe", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    print(f"torch {torch.__version__}, {options.threads} threads; {options.model}, {options.probe} probe samples.")
    for samples in options.samples:
        torch.manual_seed(0)
        x, y = torch.randn(samples, 3, 32, 32), torch.randint(0, 10, (samples,))
        network = models.build(options.model, input_shape=(3, 32, 32), outputs=10, seed=0)
        optimizer = torch.optim.SGD(network.parameters(), 0.01)
        recorder = KernelRecorder(x[: options.probe], y[: options.probe])
        epochs, records = [], []
        begin = time.perf_counter()
        recorder.record(network, 0, 0)
        first = time.perf_counter() - begin
        for epoch in range(options.epochs):
            begin = time.perf_counter()
            for batch in torch.randperm(samples).split(128):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(network(x[batch]), y[batch]).backward()
                optimizer.step()
            middle = time.perf_counter()
            recorder.record(network, epoch + 1, epoch + 1)
            epochs.append(middle - begin)
            records.append(time.perf_counter() - middle)
        ratio = statistics.median((e + r) / e for e, r in zip(epochs, records, strict=True))
        print(
            f"{samples:6d} samples: epoch {statistics.median(epochs):.3f} s, record {statistics.median(records):.3f} s,"
            f" first {first:.3f} s, ratio {ratio:.3f} (limit {LIMIT})",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
