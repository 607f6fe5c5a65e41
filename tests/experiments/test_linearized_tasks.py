"""Linearized models that are trained as one have the outcomes of the runs one by one."""

from dataclasses import replace

import pytest

from tangentlab import experiments
from tangentlab.experiments._linearized_tasks import TasksTraining, together
from tangentlab.experiments._parts import FirstFive, Images, LabeledImages, Model, OneVsRest
from tangentlab.experiments._training import Training, final, reached
from tangentlab.training import SGD, LinearDecay, SigmoidCrossEntropy, TrainingSpec

SPEC = TrainingSpec(
    epochs=6,
    batch_size=32,
    loss=SigmoidCrossEntropy(),
    optimizer=SGD(0.1, momentum=0.9),
    schedule=LinearDecay(),
    drop_last=True,
    thresholds=(0.2,),
    evaluate_every=6,
)
MODEL = Model("mlp", (1, 8, 8), 1, init="lecun")
IMAGES = Images("digits", 200, 100)
PROBLEMS = [LabeledImages(IMAGES, targets) for targets in (FirstFive(), OneVsRest(0), OneVsRest(7))]


@pytest.fixture
def context(tmp_path):
    context = experiments.open_context(tmp_path, progress=False)
    yield context
    context.close()


def test_the_outcomes_are_those_of_single_runs(context) -> None:
    trainings = {i: Training(MODEL, problem, SPEC, "linearized") for i, problem in enumerate(PROBLEMS)}
    trainings["network"] = Training(MODEL, PROBLEMS[0], SPEC)
    trainings["longer"] = Training(MODEL, PROBLEMS[0], replace(SPEC, epochs=7), "linearized")
    shared, alone = together(trainings)
    assert list(alone) == ["network", "longer"]
    assert len({work for work, _ in shared.values()}) == 1
    for i, (work, number) in shared.items():
        found, expected = context.get(work)["outcomes"][number], context.get(trainings[i])
        one, two = final(found), final(expected)
        for name in ("epoch", "step", "train_accuracy", "test_accuracy"):
            assert one[name] == two[name]
        for name in ("train_loss", "test_loss", "distance_l2", "distance_cosine"):
            assert one[name] == pytest.approx(two[name], rel=1e-3)
        assert reached(found, 0.2, "train") == pytest.approx(reached(expected, 0.2, "train"), nan_ok=True)


def test_tasks_that_diverge_are_run_one_by_one(context) -> None:
    wild = replace(SPEC, optimizer=SGD(1e38))
    found = context.get(TasksTraining(MODEL, tuple(PROBLEMS[:2]), wild))["outcomes"]
    assert all("diverged" in outcome["status"] for outcome in found)
