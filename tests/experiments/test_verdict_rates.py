"""The rates of wrong decisions that docs/verdicts.md states, on 1,000 simulated experiments of each kind.

A wrong decision is "holds" for a claim that is false or void, or "does not hold" for a true one. Each simulated
experiment has several claims, and is wrong if one of them is. The bound is the stated rate plus three standard errors
of an estimate from 1,000 experiments. Where a true effect is large, the claims must also be decided.
"""

import math
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from numpy.random import Generator

from tangentlab.experiments import Examined, Verdict
from tangentlab.experiments import _evidence as evidence
from tangentlab.experiments._verdicts import settle

EXPERIMENTS = 1000
RATE = 0.05
MOST = RATE + 3 * math.sqrt(RATE * (1 - RATE) / EXPERIMENTS)
STATES = {"true": 1.0, "void": 0.0, "false": -1.0}
# A void or false claim must not hold; a true one must not fail.
WRONG = {"true": Verdict.FAILS, "void": Verdict.HOLDS, "false": Verdict.HOLDS}
RIGHT = {"true": Verdict.HOLDS, "false": Verdict.FAILS}


def series(values: np.ndarray) -> "pd.Series[float]":
    """Return (seeds, points) with the index that evidence reads."""
    index = pd.MultiIndex.from_product([range(values.shape[0]), range(values.shape[1])], names=["seed", "point"])
    return pd.Series(values.ravel(), index)


def means(seeds: int, points: int, noise: str) -> Callable[[Generator, float], evidence.Evidence]:
    def draw(random: Generator, effect: float) -> evidence.Evidence:
        shape = (seeds, points)
        error = {
            "normal": lambda: random.standard_normal(shape),
            "heavy": lambda: random.standard_t(4, shape) / math.sqrt(2),
        }[noise]()
        return evidence.mean_of(4 * effect + error, low=0.0)

    return draw


def trends(seeds: int, points: int, ties: bool = False) -> Callable[[Generator, float], evidence.Evidence]:
    def draw(random: Generator, effect: float) -> evidence.Evidence:
        values = (3 if points == 2 else 1) * effect * np.arange(points) + random.standard_normal((seeds, points))
        return evidence.trend_of(np.round(values) if ties else values, +1)

    return draw


def spikes(seeds: int, functions: int = 200) -> Callable[[Generator, float], evidence.Evidence]:
    def draw(random: Generator, effect: float) -> evidence.Evidence:
        others = series(np.exp(random.standard_normal((seeds, functions))))
        own = pd.Series(np.exp(5 * effect + random.standard_normal(seeds)), pd.Index(range(seeds), name="seed"))
        return evidence.stands_out(own, others)

    return draw


def orders(seeds: int, functions: int = 300) -> Callable[[Generator, float], evidence.Evidence]:
    """The true rank correlation is the threshold where the claim is void."""
    threshold = 0.9

    def draw(random: Generator, effect: float) -> evidence.Evidence:
        rank = {1.0: 0.97, 0.0: threshold, -1.0: 0.7}[effect]
        pearson = 2 * math.sin(math.pi * rank / 6)  # of a normal pair with this rank correlation
        one = random.standard_normal((seeds, functions))
        two = pearson * one + math.sqrt(1 - pearson**2) * random.standard_normal((seeds, functions))
        seed = np.repeat(np.arange(seeds), functions)
        pairs = pd.DataFrame({"seed": seed, "one": one.ravel(), "two": two.ravel()})
        return evidence.correlation_above(pairs, "one", "two", threshold)

    return draw


KINDS: dict[str, Callable[[Generator, float], evidence.Evidence]] = {
    "means of 3 seeds": means(3, 4, "normal"),
    "means of 10 seeds": means(10, 1, "normal"),
    "means of 5 points": means(1, 5, "normal"),
    "heavy tails": means(5, 1, "heavy"),
    "trends of 8 points": trends(1, 8),
    "trends of 5 points, 3 seeds": trends(3, 5),
    "trends with ties": trends(3, 6, ties=True),
    "trends of 2 points": trends(5, 2),
    "spikes": spikes(2),
    "orders of one seed": orders(1),
    "orders of 4 seeds": orders(4),
}


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_decisions_are_as_rare_as_stated(kind: str) -> None:
    """Each experiment has a true, a void and a false claim."""
    random = np.random.default_rng(3)
    wrong, right = 0, dict.fromkeys(RIGHT, 0)
    for _ in range(EXPERIMENTS):
        found = [Examined("S", "s", "t", "P", KINDS[kind](random, effect)) for effect in STATES.values()]
        verdicts = dict(zip(STATES, (claim.verdict for claim in settle(found)), strict=True))
        wrong += any(verdicts[state] == WRONG[state] for state in STATES)
        for state, decision in RIGHT.items():
            right[state] += verdicts[state] == decision
    assert wrong <= MOST * EXPERIMENTS
    assert min(right.values()) >= 0.6 * EXPERIMENTS, right


def test_void_claims_are_corrected_together() -> None:
    random = np.random.default_rng(4)
    kinds = [means(5, 1, "normal"), trends(1, 7), means(4, 3, "normal"), trends(2, 5), means(3, 1, "normal")]
    wrong = 0
    for _ in range(EXPERIMENTS):
        found = [Examined("S", "s", "t", "P", kind(random, 0.0)) for kind in kinds]
        wrong += any(claim.verdict == Verdict.HOLDS for claim in settle(found))
    assert wrong <= MOST * EXPERIMENTS
    assert wrong >= 0.02 * EXPERIMENTS  # the level is used


@pytest.mark.parametrize(("seeds", "runs"), [(3, 1), (6, 1), (20, 1), (6, 5)])
def test_numbers_of_papers(seeds: int, runs: int) -> None:
    """A number of runs like ours is rejected at the stated rate; one that is far off is not accepted."""
    random = np.random.default_rng(5)
    rejected = accepted = 0
    for _ in range(EXPERIMENTS):
        ours = pd.Series(50 + random.standard_normal(seeds), pd.Index(range(seeds), name="seed"))
        like = 50 + random.standard_normal(runs).mean()
        for paper, far in ((like, False), (55.0, True)):
            found = evidence.prediction(ours, float(paper), runs)
            number = Examined("S", "s", "t", "P", found, "number", tolerance=0.5, reference=float(paper))
            (claim,) = settle([number])
            rejected += claim.verdict == Verdict.FAILS and not far
            accepted += claim.verdict == Verdict.HOLDS and far
    assert rejected <= MOST * EXPERIMENTS
    assert accepted <= MOST * EXPERIMENTS
