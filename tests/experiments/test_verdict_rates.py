"""The rates of wrong decisions that docs/verdicts.md states, on 1,000 simulated experiments of each kind.

A wrong decision is "holds" for a claim that is false or void, or "does not hold" for a true one. Each simulated
experiment has several claims, and is wrong if one of them is. The bound is the stated rate plus three standard errors
of an estimate from 1,000 experiments. Where a true effect is large, the claims must also be decided. Seeds that are
added while a claim is undecided are further tests of it, whose rates are stated apart.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.random import Generator

from docs.results_seeds import seeds_needed
from tangentlab.experiments import Examined, Verdict
from tangentlab.experiments import _evidence as evidence
from tangentlab.experiments._looks import count_tests
from tangentlab.experiments._verdicts import settle

VERDICTS = Path(__file__).parents[2] / "docs" / "verdicts.md"
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


Later = Callable[[Generator], Callable[[int], Examined]]
MOST_SEEDS = 30


def void(points: int, test: Callable[[np.ndarray], evidence.Evidence]) -> Later:
    """A claim that nothing is behind, by the number of seeds."""

    def draw(random: Generator) -> Callable[[int], Examined]:
        values = random.standard_normal((MOST_SEEDS, points))
        return lambda seeds: Examined("S", "s", "t", "P", test(values[:seeds]))

    return draw


def number(random: Generator) -> Callable[[int], Examined]:
    """A number of a paper that comes from a run like ours."""
    ours, paper = series(random.standard_normal((MOST_SEEDS, 1))).droplevel("point"), random.standard_normal()

    def examined(seeds: int) -> Examined:
        found = evidence.prediction(ours[:seeds], paper)
        return Examined("S", "s", "t", "P", found, "number", tolerance=0.1, reference=paper)

    return examined


def mean(values: np.ndarray) -> evidence.Evidence:
    return evidence.mean_of(values, low=0.0)


def rises(values: np.ndarray) -> evidence.Evidence:
    return evidence.trend_of(values, +1)


# The seeds of each step; None for as many as the page of results says, if they are no more than MOST_SEEDS.
STEPS: dict[str, tuple[Later, Sequence[int | None], Verdict]] = {
    "mean: 3, 6, 9 seeds": (void(1, mean), (3, 6, 9), Verdict.HOLDS),
    "mean: 3 seeds, then as the page says": (void(1, mean), (3, None, None), Verdict.HOLDS),
    "mean: 5 points of 1 seed, then 3, 6 seeds": (void(5, mean), (1, 3, 6), Verdict.HOLDS),
    "trend of 4 points: 1, 3, 6 seeds": (void(4, rises), (1, 3, 6), Verdict.HOLDS),
    "number of a paper: 3, 6, 9 seeds": (number, (3, 6, 9), Verdict.FAILS),
}


def wrong_by_step(
    examined: Callable[[int], Examined], steps: Sequence[int | None], mistake: Verdict, *, counted: bool
) -> list[bool]:
    """Return whether the decision is wrong if seeds are added, while it is undecided, in up to one, two, three steps.

    Args:
        examined: The claim, by the number of seeds.
        steps: The seeds of each step.
        mistake: The wrong verdict.
        counted: Whether earlier tests count.
    """
    wrong, before = list[bool](), list[list[Examined]]()
    verdict, said = Verdict.UNDECIDED, None
    for step in steps:
        seeds = step or said
        if verdict == Verdict.UNDECIDED and seeds is not None and seeds <= MOST_SEEDS:
            now = [examined(seeds)]
            (claim,) = settle(count_tests(now, before if counted else []))
            before.append(now)
            verdict, said = claim.verdict, seeds_needed(claim.as_dict())
        wrong.append(verdict == mistake)
    return wrong


def rates_by_step(kind: str, experiments: int) -> np.ndarray:
    """Return the rates of wrong decisions (counted or not, steps)."""
    random = np.random.default_rng(6)
    draw, steps, mistake = STEPS[kind]
    wrong = np.zeros((2, len(steps)))
    for _ in range(experiments):
        examined = cache(draw(random))
        wrong += [wrong_by_step(examined, steps, mistake, counted=counted) for counted in (True, False)]
    return wrong / experiments


@pytest.mark.parametrize("kind", STEPS)
def test_seeds_added_later(kind: str) -> None:
    """The rates are those in the table of docs/verdicts.md; with the factor they are below the sum of the levels."""
    (row,) = (line for line in VERDICTS.read_text().splitlines() if line.startswith(f"| {kind} |"))
    stated = np.array([float(cell.strip(" %")) / 100 for cell in row.split("|")[2:-1]]).reshape(2, 2).T
    measured = rates_by_step(kind, EXPERIMENTS)
    error = np.sqrt(stated * (1 - stated) / EXPERIMENTS)
    assert (abs(measured[:, 1:] - stated) <= 3 * error).all(), measured
    assert (stated[0] <= RATE * np.array([1 + 1 / 2, 1 + 1 / 2 + 1 / 3])).all()
    assert measured[0, 0] <= MOST
