"""Does the kernel at initialization predict training?

    python -m benchmarks.forecast --data-dir DIR --csv FILE

For five networks of ``tangentlab.models`` and three tasks of CIFAR-10 (vehicles against animals, airplanes against the
rest, even against odd class numbers), 1,000 training images, one output, squared loss, full batches, momentum 0.9, a
tenth of the largest stable learning rate, seed 0: predicted and measured steps to 70 % and 50 % of the initial training
loss, and test errors after 150 steps. Measured are the linearization and the network itself. Finished rows are in the
file and are not computed again. ``--report`` prints the summary of a file and trains nothing.

The rules, fixed before the results. The prediction agrees with the linearization if

- the measured number of steps differs by at most one, or by 2 %, from the predicted one (steps are whole, and the
  prediction is interpolated on a grid), or neither reaches the loss;
- the test error on the 1,000 images of the prediction differs by at most 0.2 points (two images, for rounding);
- the test error on 1,000 other test images is inside the prediction's 95 % interval for a second draw of that size,
  in at least 13 of the 15 cases (fewer have a probability below 4 % if every interval holds with 95 %).

For the network, Spearman's rank correlations over the 15 cases are reported as found, with a 95 % bootstrap interval;
a loss that is not reached counts as later than all others. Nothing is tuned.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from tangentlab import analysis, data, linearize, models, predict_training, tasks, training

NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MLP": ("mlp", {}),
    "MLP, one hidden layer": ("mlp", {"hidden": (200,)}),
    "FCN": ("fcn", {"hidden": 256}),
    "LeNet, average pooling": ("lenet", {"variant": "ortiz2021"}),
    "LeNet, max pooling": ("lenet", {"variant": "samarin2022"}),
}
TASKS = {"vehicles": (0, 1, 8, 9), "airplane": (0,), "even": (0, 2, 4, 6, 8)}
"""The classes that are +1."""
N, TESTS, STEPS = 1_000, 1_000, 150
LR = 0.1
"""The learning rate, as a share of the largest stable one of the linearization. Networks diverge at half of it."""
SHARES = (0.7, 0.5)
"""Parts of the initial training loss that steps are counted to."""


def measured(model: torch.nn.Module, task: Any, lr: float, levels: list[float]) -> tuple[list[float], np.ndarray]:
    """Train on full batches; return the steps to losses, and which test images are classified wrong."""
    spec = training.TrainingSpec(
        epochs=STEPS, batch_size=N, loss=training.Squared(), schedule=training.Constant(),
        optimizer=training.SGD(lr, momentum=0.9), evaluate_every=STEPS, evaluate_on=0, thresholds=tuple(levels),
    )  # fmt: skip
    found = training.train(model, task.train, spec, progress=False).iterations_to.set_index("loss")["minibatch"]
    with torch.no_grad():
        outputs = torch.cat([model(part) for part in task.test.inputs().split(250)])
    wrong = (outputs > 0) != (task.test.targets > 0)
    return [float("inf") if pd.isna(found[level]) else float(found[level]) for level in levels], wrong[:, 0].numpy()


def row(name: str, task: Any) -> dict[str, Any]:
    """Compute one network's row of the table; the first half of the test images is the prediction's."""
    kind, choice = NETWORKS[name]
    model = models.build(kind, input_shape=task.input_shape, outputs=1, seed=0, **choice)
    x, y = task.train.inputs(), task.train.targets
    near = (task.test.inputs()[:TESTS], task.test.targets[:TESTS])
    ranked = analysis.rank_models({name: model}, x, (y[:, 0] > 0).long(), progress=False).iloc[0]
    settings: dict[str, Any] = {"momentum": 0.9, "readout": "full", "progress": False}
    lr = LR * predict_training(model, x, y, steps=1, **settings).largest_stable_lr
    forecast = predict_training(model, x, y, test=near, lr=lr, steps=STEPS, **settings)
    first, last = float(forecast.table["train_loss"].iloc[0]), forecast.table.iloc[-1]
    levels = [share * first for share in SHARES]
    result: dict[str, Any] = {"lr": lr, "error": 1 - last["test_accuracy"], "error_std": last["test_accuracy_error"]}
    result |= {f"steps_{share}": forecast.steps_to(level) for share, level in zip(SHARES, levels, strict=True)}
    for key, one in (("linear", linearize(model)), ("network", model)):
        steps, wrong = measured(one, task, lr, levels)
        result |= {f"steps_{share}_{key}": count for share, count in zip(SHARES, steps, strict=True)}
        result |= {f"error_{key}": wrong[:TESTS].mean(), f"error_{key}_other": wrong[TESTS:].mean()}
    return result | {"left_out_error": ranked["error"], "left_out_squared": ranked["squared_error"]}


def report(table: pd.DataFrame) -> None:
    """Print which predictions hold, and the rank correlations."""
    print(f"{len(table)} cases")
    for share in SHARES:
        one, two = table[f"steps_{share}"], table[f"steps_{share}_linear"]
        near = (one - two).abs() <= np.maximum(1.0, 0.02 * one)
        both = np.isinf(two) & ((one > STEPS) | np.isinf(one))
        print(f"linearization, steps to {share:.0%} of the loss: {int((near | both).sum())} agree")
    gap = (table["error"] - table["error_linear"]).abs()
    print(f"linearization, test error: {int((gap <= 0.002 + 1e-12).sum())} agree, largest difference {gap.max():.2%}")
    inside = (table["error_linear_other"] - table["error"]).abs() <= 1.96 * math.sqrt(2) * table["error_std"]
    print(f"linearization, test error of other images: {int(inside.sum())} inside the 95 % interval")
    for one, two in (
        *((f"steps_{share}", f"steps_{share}_network") for share in SHARES),
        ("error", "error_network"),
        ("left_out_error", "error_network"),
        ("left_out_squared", "error_network"),
    ):
        draws = np.random.default_rng(0).integers(len(table), size=(10_000, len(table)))
        x, y = table[one].to_numpy(), table[two].to_numpy()
        low, high = np.nanquantile(correlation(x[draws], y[draws]), [0.025, 0.975])
        tasks_of = (table["task"] == name for name in table["task"].unique())
        within = ", ".join(f"{correlation(x[rows], y[rows]):.2f}" for rows in tasks_of)
        print(f"{one} and {two}: {correlation(x, y):.2f} ({low:.2f} to {high:.2f}); within the tasks {within}")


def correlation(one: np.ndarray, two: np.ndarray) -> Any:
    """Return Spearman's rank correlation along the last axis, NaN where one of the two is constant."""
    first, second = (stats.rankdata(values, axis=-1) for values in (one, two))
    first, second = (ranks - ranks.mean(-1, keepdims=True) for ranks in (first, second))
    with np.errstate(invalid="ignore"):
        return (first * second).sum(-1) / np.sqrt((first**2).sum(-1) * (second**2).sum(-1))


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forecast", description=__doc__.split("\n\n")[0])
    parser.add_argument("--data-dir", type=Path, help="folder of CIFAR-10")
    parser.add_argument("--csv", type=Path, required=True, help="file of the rows")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--report", action="store_true", help="print the summary of the file and train nothing")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    table = pd.read_csv(options.csv) if options.csv.exists() else pd.DataFrame({"task": [], "model": []})
    if not options.report:
        images = data.load("cifar10", options.data_dir).subset(N, 2 * TESTS)
        for what in options.tasks:
            for name in NETWORKS:
                if ((table["task"] == what) & (table["model"] == name)).any():
                    continue
                line = {"task": what, "model": name, **row(name, tasks.binary(images, TASKS[what]))}
                print(
                    ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{v}" for k, v in line.items()), flush=True
                )
                table = pd.concat([table, pd.DataFrame([line])], ignore_index=True)
                table.to_csv(options.csv, index=False, float_format="%.6g")
    report(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
