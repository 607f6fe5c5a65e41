"""Processes killed at random moments: what is resumed must be, bit for bit, what is computed without interruption.

An episode starts one computation (a store by one or two processes, one in an object store by two or four, the training
of a network or of its linearization), kills it a few times with SIGKILL, lets it finish and compares.

``python -m soak.kills --count 1000 --seed 0 --out soak-out``
``python -m soak.kills --count 50 --only "object store"``
"""

import argparse
import multiprocessing
import random
import shutil
import signal
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from soak._computations import PATIENCE, Kind, process, whole_store
from soak.buckets import in_bucket
from soak.progress import Log
from soak.summary import Row, text
from tangentlab.training import TrainingResult
from tests.store.test_faults import chunks, inodes
from tests.store.worker import work as fill_store
from tests.training.test_resume import same
from tests.training.worker import run as train
from tests.training.worker import work as train_in_process

MOST_KILLS = 6


@cache
def whole_training(kind: str) -> TrainingResult:
    """Train without interruption."""
    return train(kind, None)


def start_stores(count: int, folder: Path, moments: random.Random) -> list[Any]:
    budgets = [moments.choice(["1GiB", "600KiB"]) for _ in range(count)]
    return [process(fill_store, folder / "kernel.zarr", None, budget) for budget in budgets]


def intact_store(folder: Path) -> None:
    expected = whole_store()
    wrong = [name for name, content in chunks(folder / "kernel.zarr").items() if expected.get(name) != content]
    assert not wrong, f"tiles differ after a kill: {wrong[:5]}"


def finish_store(folder: Path) -> None:
    path = folder / "kernel.zarr"
    before = inodes(path)
    assert fill_store(path).complete, "tiles are missing after the last call"
    assert chunks(path) == whole_store(), "the store differs from one computed without interruption"
    after = inodes(path)
    assert {name: after[name] for name in before} == before, "a finished tile was written again"
    fill_store(path)  # clears up after the dead
    left = {entry.name for entry in path.iterdir()}
    assert left == {"zarr.json", "c"}, f"left behind: {sorted(left - {'zarr.json', 'c'})}"


def store(count: int) -> Kind:
    return Kind(
        start=lambda folder, moments: start_stores(count, folder, moments),
        steps=lambda folder: set(inodes(folder / "kernel.zarr")),
        intact=intact_store,
        finish=finish_store,
    )


def finish_training(kind: str, folder: Path) -> None:
    same(train(kind, folder), whole_training(kind))
    left = [entry.name for entry in folder.glob("*.partial")]
    assert not left, f"left behind: {left}"


def training(kind: str) -> Kind:
    return Kind(
        start=lambda folder, moments: [process(train_in_process, kind, folder)],
        steps=lambda folder: {path.name for path in folder.glob("step-*.pt")},
        intact=lambda folder: None,
        finish=lambda folder: finish_training(kind, folder),
    )


KINDS = {
    "store, one process": store(1),
    "store, two processes": store(2),
    "object store, two processes": in_bucket(2),
    "object store, four processes": in_bucket(4),
    "training, network": training("network"),
    "training, linearized": training("linearized"),
}


def kill_some(kind: Kind, folder: Path, moments: random.Random) -> int:
    """Start the computation, kill one or all of its processes at some moment, and return how many were killed."""
    before = kind.steps(folder)
    processes = kind.start(folder, moments)
    wanted, deadline = moments.choice([0, 0, 1, 1, 2, 4, 8]), time.monotonic() + PATIENCE
    while len(kind.steps(folder) - before) < wanted and any(p.is_alive() for p in processes):
        assert time.monotonic() < deadline, f"nothing new was finished in {PATIENCE} s"
        time.sleep(0.0005)
    processes[0].join(moments.uniform(0, moments.choice([0.02, 0.2, 0.5])))
    for victim in processes[: moments.randint(1, len(processes))]:
        victim.kill()
    for started in processes:
        started.join(PATIENCE)
        assert started.exitcode is not None, f"a process does not end in {PATIENCE} s"
        assert started.exitcode in (0, -signal.SIGKILL), f"a process ended with code {started.exitcode}"
    kind.intact(folder)
    return sum(started.exitcode == -signal.SIGKILL for started in processes)


def episode(number: int, seed: int, out: Path, only: str = "") -> dict[str, Any]:
    """Run one computation with its kills. The folder of one that failed is stored in ``out``."""
    kinds = [name for name in KINDS if name.startswith(only)]
    moments, name = random.Random(f"{seed}/{number}"), kinds[number % len(kinds)]
    folder = out / f"kills-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    record: dict[str, Any] = {"episode": number, "kind": name, "kills": 0, "wrong": ""}
    start = time.monotonic()
    try:
        for _ in range(moments.randint(1, MOST_KILLS)):
            record["kills"] += kill_some(KINDS[name], folder, moments)
        KINDS[name].finish(folder)
        shutil.rmtree(folder)
    except Exception as error:
        record["wrong"] = f"{type(error).__name__}: {error}"[:500]
        for child in multiprocessing.active_children():
            child.kill()
    record["seconds"] = round(time.monotonic() - start, 3)
    return record


def rows(records: Iterable[dict[str, Any]]) -> list[Row]:
    """Return one row per kind of computation; the trials are kills."""
    everything = list(records)
    table = []
    for name in KINDS:
        own = [record for record in everything if record["kind"] == name]
        wrong = sum(bool(record["wrong"]) for record in own)
        table.append(Row(f"kills: {name}", sum(r["kills"] for r in own), wrong, 0, sum(r["seconds"] for r in own)))
    return table


def run(count: int, seed: int, out: Path, only: str = "") -> list[Row]:
    """Run episodes until there have been ``count`` kills, including those of an earlier run.

    Args:
        count: Kills.
        seed: The seed of the moments.
        out: The folder of the log.
        only: The beginning of the names of the kinds to run.
    """
    log = Log(out / "kills.jsonl", {"kind": "kills", "seed": seed} | ({"only": only} if only else {}))
    done = list(log.records())
    kills, number = sum(record["kills"] for record in done), len(done)
    while kills < count:
        record = episode(number, seed, out, only)
        log.append(record)
        if record["wrong"]:
            print(f"episode {number}, {record['kind']}: {record['wrong']}", flush=True)
        kills, number = kills + record["kills"], number + 1
    return [row for row in rows(log.records()) if row.kind.startswith(f"kills: {only}")]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.kills", description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-out"))
    parser.add_argument("--only", default="", metavar="KIND", help="for instance 'object store'")
    arguments = parser.parse_args()
    if not any(name.startswith(arguments.only) for name in KINDS):
        parser.error(f"There is no kind {arguments.only!r}; there are {', '.join(KINDS)}.")
    table = run(arguments.count, arguments.seed, arguments.out, arguments.only)
    print(text(table))
    return int(any(row.wrong for row in table))


if __name__ == "__main__":
    raise SystemExit(main())
