"""Does the kernel at initialization predict training?

    python -m benchmarks.forecast --data-dir DIR

For five networks of ``tangentlab.models`` and two tasks of CIFAR-10 (vehicles against animals, and one class against
the rest), 200 training and 300 test images, one output, squared loss, full batches, momentum 0.9, a tenth of the
largest stable learning rate: predicted and measured steps to half of the initial training loss and to a tenth, and test
errors after ``--steps`` steps. Measured are the linearization, for which the prediction is exact up to rounding (steps
are interpolated between those of a grid), and the network itself, for which Spearman's rank correlation over networks
and tasks is printed. Networks are also ranked by ``analysis.rank_models``. Nothing is tuned; one seed.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tangentlab import analysis, data, linearize, models, predict_training, tasks, training

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlp": ("mlp", {}),
    "mlp, one layer": ("mlp", {"hidden": (200,)}),
    "lenet": ("lenet", {"variant": "ortiz2021"}),
    "lenet, GELU": ("lenet", {"variant": "ortiz2021", "activation": "gelu"}),
    "lenet, twice as wide": ("lenet", {"variant": "ortiz2021", "width": 2.0}),
}
N, TESTS = 200, 300
LR = 0.1
"""The learning rate, as a share of the largest stable one of the linearization. Networks diverge at half of it."""


def measured(model: torch.nn.Module, task: Any, lr: float, steps: int) -> pd.DataFrame:
    """Train on full batches and return the history."""
    spec = training.TrainingSpec(
        epochs=steps,
        batch_size=N,
        loss=training.Squared(),
        schedule=training.Constant(),
        optimizer=training.SGD(lr, momentum=0.9),
    )
    return training.train(model, task, spec, progress=False).history


def reached(history: pd.DataFrame, loss: float) -> float:
    """Return the first step at which the training loss is at most this."""
    hit = history[history["train_loss"] <= loss]
    return float(hit["step"].iloc[0]) if len(hit) else math.inf


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, required=True, help="folder of CIFAR-10")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="file to write the table to")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    images = data.load("cifar10", options.data_dir).subset(N, TESTS)
    rows = []
    for what, task in (("vehicles", tasks.binary(images, (0, 1, 8, 9))), ("airplane", tasks.one_vs_rest(images, 0))):
        made = {
            name: models.build(kind, input_shape=images.input_shape, outputs=1, seed=0, **choice)
            for name, (kind, choice) in NETWORKS.items()
        }
        ranked = analysis.rank_models(made, task.train.inputs(), task.train.targets, progress=False)
        for name, model in made.items():
            settings = {"momentum": 0.9, "readout": "full", "progress": False}
            stable = predict_training(model, task.train, steps=1, **settings).largest_stable_lr
            forecast = predict_training(
                model, task.train, test=task.test, lr=LR * stable, steps=options.steps, **settings
            )
            histories = {"linear": linearize(model), "network": model}
            found = {key: measured(one, task, forecast.lr, options.steps) for key, one in histories.items()}
            first = float(forecast.table["train_loss"].iloc[0])
            last = forecast.table.iloc[-1]
            row: dict[str, Any] = {"task": what, "model": name, "lr": forecast.lr}
            for share in (0.5, 0.1):
                row[f"steps_{share}"] = forecast.steps_to(share * first)
                row |= {f"steps_{share}_{key}": reached(one, share * first) for key, one in found.items()}
            row["test_error"], row["test_error_std"] = 1 - last["test_accuracy"], last["test_accuracy_error"]
            row |= {f"test_error_{key}": 1 - float(one["test_accuracy"].iloc[-1]) for key, one in found.items()}
            row["rank_models"] = float(ranked.set_index("model")["squared_error"].loc[name])
            rows.append(row)
            print(", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
    table = pd.DataFrame(rows)
    if options.csv:
        table.to_csv(options.csv, index=False)
    for one, two in (
        ("steps_0.5", "steps_0.5_network"),
        ("steps_0.1", "steps_0.1_network"),
        ("test_error", "test_error_network"),
        ("rank_models", "test_error_network"),
    ):
        print(f"Spearman's rank correlation of {one} and {two}: {table[one].corr(table[two], method='spearman'):.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
