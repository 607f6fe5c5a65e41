"""Run every tool on a case: find its fastest setting, measure that with care, and check that kernels agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
import torch

from benchmarks import memory
from benchmarks.cases import Case
from benchmarks.least_time import LeastTime, least_time
from benchmarks.measure import Options, Outcome, run
from benchmarks.networks import make_problem
from benchmarks.peers import OURS, PEERS
from benchmarks.peers._peer import describe

AGREEMENT = 1e-3
"""Largest relative Frobenius error between two tools' float32 kernels."""

CLOSE = 1.5
"""A tool's second fastest setting is measured with care too if its trial took at most this many times the first's."""

Say = Callable[[str], None]


@dataclass
class Comparison:
    """All outcomes on one case.

    Attributes:
        case: what was asked.
        trials: every setting tried.
        finals: the careful measurement of each tool's fastest setting, by tool.
        unavailable: tools that could not be run at all, with the reason.
        limit: the least time that any tool could take here, if it was measured.
    """

    case: Case
    trials: list[Outcome] = field(default_factory=list)
    finals: dict[str, Outcome] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    limit: LeastTime | None = None

    @property
    def over_limit(self) -> float | None:
        """Our time over the limit."""
        ours = self.finals.get(OURS)
        return ours.best / self.limit.seconds if ours and self.limit else None

    @property
    def best_peer(self) -> Outcome | None:
        """The fastest tool other than ours."""
        peers = [final for name, final in self.finals.items() if name != OURS]
        return min(peers, key=lambda final: final.best, default=None)

    @property
    def ratio(self) -> float | None:
        """The best peer's time over ours."""
        ours, peer = self.finals.get(OURS), self.best_peer
        return peer.best / ours.best if ours and peer else None

    def first(self, peer: str) -> float:
        """Return the seconds to a tool's first kernel, including compilation, at the setting that is fastest in this
        respect."""
        measured = [outcome for outcome in (*self.trials, *self.finals.values()) if outcome.peer == peer]
        return min((o.first for o in measured if o.first is not None and o.status == "ok"), default=float("inf"))

    @property
    def first_ratio(self) -> float | None:
        """The same ratio for the first kernel of a network, including compilation."""
        ours, peer = self.first(OURS), min((self.first(name) for name in self.finals if name != OURS), default=None)
        return peer / ours if peer is not None and ours < float("inf") else None

    @property
    def disagreements(self) -> list[Outcome]:
        """Every measurement whose kernel is further from the reference than float32 explains."""
        measured = [*self.trials, *self.finals.values()]
        # written so that a NaN counts as a disagreement
        return [outcome for outcome in measured if outcome.error is not None and not outcome.error <= AGREEMENT]


def compare(case: Case, interpreters: Mapping[str, Path | str], options: Options, seed: int, say: Say) -> Comparison:
    """Measure the named tools on one case, one process at a time.

    Args:
        case: the problem.
        interpreters: for each tool its Python, or the reason why it has none.
        options: how to measure; settings that cannot win are given up before ``limit``, see :func:`_patience`.
        seed: of weights and inputs.
        say: receives a line for every measurement.
    """
    result = Comparison(case)
    with tempfile.TemporaryDirectory(prefix="tangentlab-bench-") as name:
        folder = Path(name)
        problem = folder / "problem.npz"
        make_problem(case, seed).save(problem)
        reference = folder / "reference.npy"

        def measured(peer: str, python: Path, setting: dict, options: Options) -> Outcome:
            kernel = folder / "kernel.npy"
            outcome = run(python, peer, setting, case, problem, kernel, options)
            if outcome.status == "ok":
                if reference.exists():
                    outcome.error = _relative_error(kernel, reference)
                else:
                    kernel.replace(reference)
            say(f"  {peer:<16} {describe(outcome.setting):<58} {_in_words(outcome)}")
            return outcome

        quickest: dict[str, float] = {}
        for peer, python in interpreters.items():
            if isinstance(python, str):
                result.unavailable[peer] = python
        queue = [
            (peer, setting)
            for settings in zip_longest(*(PEERS[peer].settings(case) for peer in interpreters))
            for peer, setting in zip(interpreters, settings, strict=True)
            if setting is not None and peer not in result.unavailable
        ]
        for peer, setting in queue:
            trial = replace(
                options,
                repeats=min(3, options.repeats),
                enough=5.0,
                limit=min(options.limit, _patience(peer, quickest)),
                memory=min(options.memory, memory.available()),
            )
            outcome = measured(peer, Path(interpreters[peer]), dict(setting), trial)
            result.trials.append(outcome)
            quickest[peer] = min(quickest.get(peer, float("inf")), outcome.best)

        say("  the fastest setting of each again, side by side:")
        for peer, python in interpreters.items():
            tried = [trial for trial in result.trials if trial.peer == peer and trial.status == "ok"]
            tried.sort(key=lambda trial: trial.best)
            close = [trial for trial in tried[:2] if trial.best <= CLOSE * tried[0].best]
            finals = [measured(peer, Path(python), trial.setting, options) for trial in close]
            if tried:
                result.finals[peer] = min([*finals, tried[0]], key=lambda final: final.best)
    if options.device == "cpu":
        torch.set_num_threads(options.threads)
        result.limit = found = least_time(case, options.repeats, seed)
        say(f"  limit: {found.passes:.3f} s of passes, {found.operations / 1e9:.1f} of {found.rate / 1e9:.0f} GFLOP/s")
    return result


def _patience(peer: str, quickest: Mapping[str, float]) -> float:
    """Return the seconds after which a setting cannot be its tool's fastest, or its tool not the fastest of all."""
    own = quickest.get(peer, float("inf"))
    if own < float("inf"):
        return max(10.0, 2 * own)
    return max(40.0, 4 * min(quickest.values(), default=float("inf")))


def _relative_error(kernel: Path, reference: Path) -> float:
    """Compute the relative Frobenius error, accumulated in float64 row by row."""
    ours, theirs = np.load(kernel, mmap_mode="r"), np.load(reference, mmap_mode="r")
    if ours.shape != theirs.shape:
        return float("inf")
    difference = norm = 0.0
    for start in range(0, len(ours), 256):
        expected = theirs[start : start + 256].astype(np.float64)
        difference += float(np.square(ours[start : start + 256] - expected).sum())
        norm += float(np.square(expected).sum())
    return (difference / norm) ** 0.5


def _in_words(outcome: Outcome) -> str:
    if outcome.status != "ok":
        return outcome.status + (f": {outcome.note}" if outcome.note else "")
    words = f"{outcome.best:8.3f} s  {(outcome.peak or 0) / memory.GIB:6.2f} GiB"
    return words + ("" if outcome.error is None else f"  error {outcome.error:.1e}")
