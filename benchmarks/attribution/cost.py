"""What each method costs for one checkpoint, in trainings of the network on the same digits in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd

from benchmarks.attribution.setup import Setup
from tangentlab import attribution
from tangentlab.attribution import Exact, Gradient, Method, Representer, Trak

METHODS: dict[str, Method] = {
    "trak, k 256": Trak(k=256),
    "trak, k 2048": Trak(k=2048),
    "gradient": Gradient(),
    "exact, given ridge": Exact(ridge=1.0),
    "exact, ridge by leave-one-out": Exact(),
    "representer, given ridge": Representer(ridge=1.0),
}


def cost(setup: Setup, say: Callable[[str], None]) -> pd.DataFrame:
    """Return seconds and trainings of each method, one run each."""
    retraining = setup.retraining
    model = setup.checkpoints(1)[0]
    _, training = _timed(lambda: retraining.model(seed=0))
    rows = [{"what": "one training", "seconds": training, "trainings": 1.0}]
    (x, y), (x_test, y_test) = retraining.train, retraining.test
    for name, method in METHODS.items():
        _, seconds = _timed(
            lambda method=method: attribution.attribute(model, x, x_test, method, targets=y, test_targets=y_test)
        )
        rows.append({"what": name, "seconds": seconds, "trainings": seconds / training})
        say(f"{name}: {seconds:.1f} s")
    return pd.DataFrame(rows)


def _timed(compute: Callable[[], object]) -> tuple[object, float]:
    begin = time.perf_counter()
    return compute(), time.perf_counter() - begin
