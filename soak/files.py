"""Damaged files for every reader: ``python -m soak.files --count 20000 --seed 0 --out DIR``.

Input i is a pure function of the seed and of i. It is read in a forked process with a limit of memory and of time.
Three things may happen: it is accepted and gives proper numbers (where the format has checksums, and they were not made
anew, exactly the original's); it is refused with a ``TangentError``; anything else is wrong: another exception, a
number that is none, other content, a process that hangs, dies, or takes far too much memory.

What is wrong is kept: ``DIR/failures`` has the files of each case and what happened. An interrupted run resumes
where it ended.
"""

import argparse
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from soak.mutations import Mutation, mutate
from soak.readers import READERS, Reader, numbers, quiet
from tangentlab import TangentError

SECONDS = 20.0
"""For one input, on a busy machine."""
MEMORY = 2 * 2**30
"""Address space beyond that of a process that has read nothing."""
GROWTH = 300 * 2**20
"""Resident memory that one input may add at its peak."""
_BATCH = 200


@dataclass(frozen=True)
class Row:
    """One reader's row of the table.

    Attributes:
        kind: The reader.
        tried: Inputs.
        wrong: Those with a result that is neither right nor a refusal.
        refused: Those that were refused with a clear message.
        seconds: Time that it took.
    """

    kind: str
    tried: int = 0
    wrong: int = 0
    refused: int = 0
    seconds: float = 0.0

    @property
    def accepted(self) -> int:
        """Inputs that gave proper numbers."""
        return self.tried - self.wrong - self.refused

    def plus(self, verdict: str, seconds: float) -> "Row":
        """Return the row with one more input."""
        wrong, refused = verdict not in ("accepted", "refused"), verdict == "refused"
        return Row(self.kind, self.tried + 1, self.wrong + wrong, self.refused + refused, self.seconds + seconds)

    def cells(self) -> tuple[str, ...]:
        """Return the cells for the table of all soak runs."""
        minutes, seconds = divmod(round(self.seconds), 60)
        return self.kind, f"{self.tried:,}", f"{self.wrong:,}", f"{self.refused:,}", f"{minutes}:{seconds:02}"


@dataclass(frozen=True)
class Verdict:
    """The outcome of one input: "accepted", "refused", or what is wrong with it."""

    index: int
    word: str
    seconds: float


def run(count: int, seed: int, out: Path, readers: Sequence[Reader] = READERS) -> list[Row]:
    """Try ``count`` inputs, the readers in turn.

    Args:
        count: Inputs in all, those of an interrupted run included.
        seed: Of the mutations.
        out: For the state of the run and for failures.
        readers: Which.

    Returns:
        A row for each reader.
    """
    torch.set_num_threads(1)
    folder = Path(out) / "files"
    originals = _originals(folder, readers)
    state = folder / "state.json"
    run_of = {"seed": seed, "readers": [reader.name for reader in readers]}
    rows, start = [Row(reader.name) for reader in readers], 0
    if state.exists() and (known := json.loads(state.read_text()))["run"] == run_of:
        rows, start = [Row(**row) for row in known["rows"]], known["next"]
    while start < count:
        stop = min(start + _BATCH, count)
        for verdict in _verdicts(start, stop, seed, folder, readers, originals):
            which = verdict.index % len(readers)
            rows[which] = rows[which].plus(verdict.word, verdict.seconds)
            start = verdict.index + 1
        state.write_text(json.dumps({"run": run_of, "next": start, "rows": [asdict(row) for row in rows]}))
    return rows


def _originals(folder: Path, readers: Sequence[Reader]) -> list[list[np.ndarray]]:
    """Write undamaged files of every reader to ``folder/originals``, and return the numbers that it reads from them."""
    found = []
    for number, reader in enumerate(readers):
        place = folder / "originals" / str(number)
        if not (place / "made").exists():
            shutil.rmtree(place, ignore_errors=True)
            (place / "data").mkdir(parents=True)
            reader.make(place / "data")
            (place / "made").touch()
        with _copy(place / "data", folder / "whole") as copied:
            found.append([np.array(part) for part in numbers(quiet(partial(reader.read, copied)))])
    return found


@contextmanager
def _copy(source: Path, target: Path) -> Iterator[Path]:
    """Copy some files, with a cache of their own next to them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target / "data")
    os.environ["XDG_CACHE_HOME"] = str(target / "cache")
    try:
        yield target / "data"
    finally:
        shutil.rmtree(target, ignore_errors=True)


def _verdicts(
    start: int, stop: int, seed: int, folder: Path, readers: Sequence[Reader], originals: list[list[np.ndarray]]
) -> Iterator[Verdict]:
    """Judge the inputs from start to stop, each in a forked process; one that hangs or dies is replaced."""
    context = multiprocessing.get_context("fork")
    while start < stop:
        receive, send = context.Pipe(duplex=False)
        arguments = (send, start, stop, seed, folder, readers, originals)
        process = context.Process(target=_work, args=arguments, daemon=True)
        process.start()
        send.close()
        word = ""
        while start < stop:
            try:
                if not receive.poll(3 * SECONDS):
                    word = "hangs"
                    break
                verdict = receive.recv()
            except EOFError:
                word = "the process died"
                break
            yield verdict
            start = verdict.index + 1
        if word:
            process.kill()
            process.join()
            word = f"{word} (exit code {process.exitcode})"
            _keep_failure(start, seed, folder, readers, word)
            yield Verdict(start, word, 3 * SECONDS)
            start += 1
        process.join()


def _work(
    send: Connection,
    start: int,
    stop: int,
    seed: int,
    folder: Path,
    readers: Sequence[Reader],
    originals: list[list[np.ndarray]],
) -> None:
    """Run the work of the forked process."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    signal.signal(signal.SIGALRM, _too_long)
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, 2)  # libraries write about damaged files to standard error
    for index in range(start, stop):
        began = time.monotonic()
        word = judge(index, seed, folder, readers, originals)
        if word not in ("accepted", "refused"):
            _keep_failure(index, seed, folder, readers, word)
        send.send(Verdict(index, word, time.monotonic() - began))
    send.close()


class _Timeout(BaseException):
    """A timeout that is not an Exception, so that no reader takes it for damage."""


def _too_long(*_: Any) -> None:
    raise _Timeout


def spoil(index: int, seed: int, readers: Sequence[Reader], data: Path) -> Mutation:
    """Damage one file in a folder of undamaged ones."""
    rng = random.Random(f"{seed}:{index}")
    reader = readers[index % len(readers)]
    files = sorted({path for pattern in reader.mutable for path in data.glob(pattern) if path.is_file()})
    path = rng.choice(files)
    mutation = mutate(path.read_bytes(), path.name, rng)
    if mutation.content is None:
        path.unlink()
    else:
        path.write_bytes(mutation.content)
    return mutation


def judge(index: int, seed: int, folder: Path, readers: Sequence[Reader], originals: list[list[np.ndarray]]) -> str:
    """Read one damaged input; return "accepted", "refused", or what is wrong."""
    which = index % len(readers)
    reader = readers[which]
    place = folder / "work" / str(os.getpid())
    with _copy(folder / "originals" / str(which) / "data", place) as copied:
        mutation = spoil(index, seed, readers, copied)
        before = _peak(anew=True)
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            found = numbers(quiet(lambda: reader.read(copied)))
        except TangentError as error:
            word = "refused"
            if isinstance(error.__cause__, MemoryError):
                word = "takes too much memory, and says it is damaged"
            elif not error.what or len(str(error)) > 5000 or "\x1b" in str(error):
                word = f"the refusal is not clear: {str(error)[:300]!r}"
        except _Timeout:
            return f"takes more than {SECONDS} s"
        except Exception:
            return traceback.format_exc()
        else:
            exact = reader.checksums and not mutation.sealed
            word = _compare(found, originals[which], exact)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        grown = _peak() - before
        if grown > GROWTH:
            return f"takes {grown:,} bytes of memory ({word})"
        strangers = {path.name for path in place.iterdir()} - {"data", "cache"}
        return f"writes {strangers} elsewhere" if strangers else word


def _peak(anew: bool = False) -> int:
    """Return the peak resident memory of the process in bytes, on Linux; optionally reset it."""
    if anew:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _compare(found: list[np.ndarray], original: list[np.ndarray], exact: bool) -> str:
    if any(part.dtype.kind == "f" and np.isnan(part).any() for part in found):
        return "gives NaN without a word"
    if exact:
        same = len(found) == len(original) and all(
            a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
            for a, b in zip(found, original, strict=True)
        )
        if not same:
            return "gives other numbers without a word"
    return "accepted"


def _keep_failure(index: int, seed: int, folder: Path, readers: Sequence[Reader], word: str) -> None:
    """Store the files of a failure with a description."""
    which = index % len(readers)
    place = folder / "failures" / f"{seed}-{index}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder / "originals" / str(which) / "data", place / "data")
    mutation = spoil(index, seed, readers, place / "data")
    (place / "verdict.txt").write_text(f"{readers[which].name}\n{mutation.kind}\n{word}\n")


def table(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    head = ("reader", "inputs", "accepted", "refused", "wrong")
    lines = [(r.kind, f"{r.tried:,}", f"{r.accepted:,}", f"{r.refused:,}", f"{r.wrong:,}") for r in rows]
    total = Row("all", *(sum(getattr(r, name) for r in rows) for name in ("tried", "wrong", "refused")))
    lines.append((total.kind, f"{total.tried:,}", f"{total.accepted:,}", f"{total.refused:,}", f"{total.wrong:,}"))
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.rjust(w) if i else cell.ljust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True)))
        for line in (head, *lines)
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the command; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m soak.files", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("soak-out"), help="state and failures")
    options = parser.parse_args(arguments)
    rows = run(options.count, options.seed, options.out)
    print(table(rows))
    wrong = sum(row.wrong for row in rows)
    if wrong:
        print(f"{wrong} wrong: see {options.out / 'files' / 'failures'}")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
