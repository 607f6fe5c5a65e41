"""What would decide the claims that are undecided."""

import pytest

from docs.published import results
from docs.results_seeds import seeds_needed, steps
from tangentlab.experiments import Verdict
from tests.docs.test_commands import parse

UNMET = ("hardly learned", "rounding error at every width")


def test_every_published_undecided_claim_has_a_number_of_seeds_or_an_unmet_condition() -> None:
    found = results()
    undecided = [c for result in found for c in result.record["claims"] if c["verdict"] == Verdict.UNDECIDED]
    without = [claim["explanation"] for claim in undecided if seeds_needed(claim) is None]
    assert all(any(words in text for words in UNMET) for text in without), without
    made = steps(found)
    assert sum(step.undecided for step in made) == len(undecided) - len(without)
    assert [step.rate for step in made] == sorted((step.rate for step in made), reverse=True)
    for step in made:
        assert len({tuple(result.record["seeds"]) for result in step.results}) == 1
        assert step.seeds > len(step.results[0].record["seeds"])
        assert f"--seeds {step.seeds} " in step.command
        assert parse(step.command.split()[1:]) == ["reproduce"]


@pytest.mark.parametrize(
    ("explanation", "seeds"),
    [
        ("Over 4 points, 1 seed, p = 0.083 after correction. About 2 seeds in all would decide, if ...", 2),
        ("Over 3 seeds, p = 0.4 after correction. About 1,099 seeds in all would decide, if ...", 1099),
        ("No outcome of 1 seed could decide it. The spread over seeds is not known; it takes at least 3 seeds.", 3),
        ("The spread over seeds is not known; it takes 3 to 6 seeds.", 3),
        ("The prediction interval, 2 to 8 over 3 seeds, is too wide to say much. With 6 seeds it is decided.", 6),
        ("Over 4 points of 1 seed, p = 0.059 after correction. About 5 points in all would decide, if ...", 3),
        ("3 seeds would decide it.", 3),
        ("Over 3 seeds, p = 1 after correction. No number of seeds would decide what is seen here.", None),
        ("The networks hardly learned: 69 % of the training loss is left.", None),
    ],
)
def test_seeds_are_read_from_the_explanation(explanation: str, seeds: int | None) -> None:
    assert seeds_needed({"verdict": "undecided", "explanation": explanation}) == seeds
    assert seeds_needed({"verdict": "holds", "explanation": explanation}) is None
