"""Random architectures: each kernel against its definition, and a few other properties in turn.

``python -m soak.architectures --count 10000 --seed 0 --out soak-out``
"""

import argparse
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from soak.progress import Log
from soak.reproducer import brief, program
from soak.summary import Row, text
from tangentlab import TangentError
from tests.kernels.architectures import Architecture, draw, refusable, simpler
from tests.kernels.case import Case
from tests.kernels.properties import PROPERTIES

ALWAYS, OTHERS = "definition", tuple(name for name in PROPERTIES if name != "definition")
IN_TURN = 3
SLOW = ("stored", "sketched")
"""Properties for every fourth network only."""
SECONDS = 120
"""After which a property counts as one that never ends."""

Outcome = tuple[str, str]
"""What became of a trial ("right", "refused", "wrong", "invalid"), and the message."""


def architecture(seed: int, index: int) -> Architecture:
    """Return the ``index``-th network of a seed, no matter what was drawn before it."""
    return draw(random.Random(f"{seed}/{index}").choice, index)


def outcome(description: Architecture, name: str, case: Case | None = None) -> Outcome:
    """Try one property of one network, which is built if it is not passed."""
    try:
        case = case or Case(description)
        if not torch.isfinite(case.expected).all():
            return "invalid", "plain automatic differentiation gives values that are not finite"
    except Exception as error:
        return "invalid", f"plain automatic differentiation fails: {type(error).__name__}: {error}"
    try:
        with time_limit(SECONDS):
            case.check(PROPERTIES[name])
    except TangentError as refusal:
        needed = refusable(description, name)
        return ("refused", str(refusal)) if needed else ("wrong", f"refused without need: {refusal}")
    except Exception as error:
        return "wrong", f"{type(error).__name__}: {error}"
    return "right", ""


class time_limit:
    """A context that raises TimeoutError after some seconds, so that a hang is a failure and does not stop the run."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def stop(*_: object) -> None:
            raise TimeoutError(f"not finished after {self.seconds} s")

        self.before = signal.signal(signal.SIGALRM, stop)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, self.before)


def kind_of(message: str) -> str:
    """Return what a failure has in common with those of simpler networks."""
    return message.split(":")[0]


def shrink(
    description: Architecture, name: str, message: str, tries: int = 100, attempt: Callable[..., Outcome] = outcome
) -> tuple[Architecture, str]:
    """Return the simplest network found that fails in the same way, and its message.

    From each network the first simpler one that still fails is taken, until none does or ``tries`` are used up.
    """
    kind, found = kind_of(message), True
    while found and tries > 0:
        found = False
        for candidate in simpler(description):
            tries -= 1
            verdict, new = attempt(candidate, name)
            if verdict == "wrong" and kind_of(new) == kind:
                description, message, found = candidate, new, True
                break
            if tries <= 0:
                break
    return description, message


def trial(index: int, seed: int, out: Path, names: tuple[str, ...] | None = None) -> dict[str, Any]:
    """Try all properties of one network; write programs that reproduce failures to ``out``."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    description = architecture(seed, index)
    record: dict[str, Any] = {"index": index, "tried": {}, "seconds": {}, "messages": {}}
    case = Case(description)
    quick = [name for name in OTHERS if name not in SLOW or index % 4 == 0]
    for name in names or (ALWAYS, *random.Random(index).sample(quick, IN_TURN)):
        start = time.monotonic()
        verdict, message = outcome(description, name, case)
        record["seconds"][name] = round(time.monotonic() - start, 4)
        record["tried"][name] = verdict
        if verdict != "right":
            record["messages"][name] = message[:500]
        if verdict == "wrong":
            smaller, message = shrink(description, name, message)
            file = out / f"wrong-{name}-{index}.py"
            file.write_text(program(smaller, name, message))
            record.setdefault("shrunk", {})[name] = {"message": message[:500], "network": brief(smaller)}
            if name == ALWAYS:
                break  # what follows would say the same again
    return record


def trials(todo: Iterable[int], processes: int, work: Callable[[int], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    if processes == 1:
        yield from map(work, todo)
        return
    with ProcessPoolExecutor(processes, get_context("forkserver")) as pool:
        yield from pool.map(work, todo)


def rows(records: Iterable[dict[str, Any]]) -> list[Row]:
    """Return one row per property."""
    table: dict[str, Row] = {}
    for record in records:
        for name, verdict in record["tried"].items():
            row = table.get(name, Row(f"architectures: {name}", 0, 0, 0, 0.0))
            table[name] = Row(
                row.kind,
                row.tried + (verdict != "invalid"),
                row.wrong + (verdict == "wrong"),
                row.refused + (verdict == "refused"),
                row.seconds + record["seconds"][name],
            )
    return [table[name] for name in PROPERTIES if name in table]


def run(count: int, seed: int, out: Path, *, processes: int = 1, names: tuple[str, ...] | None = None) -> list[Row]:
    """Try ``count`` networks, except those in the log of an earlier run, and summarize all of them."""
    log = Log(out / "architectures.jsonl", {"kind": "architectures", "seed": seed, "properties": names and list(names)})
    done = {record["index"] for record in log.records()}
    todo = [index for index in range(count) if index not in done]
    for record in trials(todo, processes, partial(trial, seed=seed, out=out, names=names)):
        log.append(record)
        for name, shrunk in record.get("shrunk", {}).items():
            print(f"network {record['index']}, {name}: {shrunk['message'].splitlines()[0]}", flush=True)
    return rows(record for record in log.records() if record["index"] < count)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m soak.architectures", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-out"))
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--property", dest="names", action="append", choices=list(PROPERTIES))
    arguments = parser.parse_args()
    names = tuple(arguments.names) if arguments.names else None
    table = run(arguments.count, arguments.seed, arguments.out, processes=arguments.processes, names=names)
    print(text(table))
    return int(any(row.wrong for row in table))


if __name__ == "__main__":
    raise SystemExit(main())
