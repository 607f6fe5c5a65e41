"""Experiments with task vectors: addition, negation, the disentanglement error."""

import pytest
import torch
from torch import Tensor, nn

from tangentlab import TangentError, finetune, linearize, plot, training
from tangentlab.finetune import TaskVector, different_predictions


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def samples(seed: int) -> tuple[Tensor, Tensor]:
    """A task whose samples are on one side of the first axis, so that two tasks do not overlap."""
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    x[:, 0] = (x[:, 0].abs() + 1) * (1 if seed % 2 else -1)
    return x, x[:, 1:4].roll(seed % 10, 1).argmax(1)


SPEC = training.TrainingSpec(epochs=10, batch_size=20, optimizer=training.SGD(0.3))
SCALES = (0.0, 0.5, 1.0)


@pytest.fixture(scope="module")
def arithmetic() -> finetune.TaskArithmetic:
    tasks = {str(seed): (samples(seed), samples(seed + 10), samples(seed + 20)) for seed in (0, 1)}
    return finetune.task_arithmetic(network(), tasks, SPEC, scales=SCALES, keep=0.5, progress=False)


@pytest.mark.parametrize("kind", ["network", "linearization"])
def test_addition_equals_models_evaluated_one_by_one(arithmetic: finetune.TaskArithmetic, kind: str) -> None:
    base = network() if kind == "network" else linearize(network())
    vectors = arithmetic.vectors[kind]
    found = arithmetic.additions[kind]
    loss = training.SoftmaxCrossEntropy()
    for row in found.table.to_dict("records"):
        edited = sum(vectors.values()).apply(base, row["scale"])
        for name in vectors:
            expected = training.evaluate(edited, samples(int(name) + 20), loss).accuracy
            assert row[name] == pytest.approx(expected)
    for name, vector in vectors.items():
        assert found.alone[name] == pytest.approx(
            training.evaluate(vector.apply(base), samples(int(name) + 20), loss).accuracy
        )
        assert found.alone[name] > found.base[name]
    shares = [found.best[name] / found.alone[name] for name in vectors]
    assert found.best["normalized"] == pytest.approx(sum(shares) / 2)
    assert "own models" in str(found)


def test_the_scale_is_chosen_on_validation_samples(arithmetic: finetune.TaskArithmetic) -> None:
    vectors = arithmetic.vectors["network"]
    tests, validation = ({n: samples(int(n) + more) for n in vectors} for more in (20, 10))
    on_validation = finetune.addition(network(), vectors, validation, scales=SCALES)
    assert arithmetic.additions["network"].scale == on_validation.scale
    both = finetune.addition(network(), vectors, tests, validation=validation, scales=SCALES)
    assert both.table.equals(arithmetic.additions["network"].table)


def test_negation_keeps_the_control(arithmetic: finetune.TaskArithmetic) -> None:
    vector = arithmetic.vectors["network"]["0"]
    tuned = vector.apply(network())
    found = finetune.negation(tuned, vector, samples(20), samples(21), keep=0.5, scales=(0.5, 1.0, 2.0))
    assert found.base["target"] > 0.8
    assert found.best["target"] < found.base["target"]
    assert found.best["control"] >= 0.5 * found.base["control"]
    none = finetune.negation(tuned, vector, samples(20), samples(20), keep=1.0, scales=(2.0,))
    assert none.scale == 0
    assert set(arithmetic.negations["linearization"]) == {"0", "1"}


@pytest.mark.parametrize("kind", ["network", "linearization"])
def test_disentanglement_error_is_its_definition(arithmetic: finetune.TaskArithmetic, kind: str) -> None:
    base = network() if kind == "network" else linearize(network())
    one, two = arithmetic.vectors[kind].values()
    tasks = {"a": (one, samples(20)[0]), "b": (two, samples(21))}
    scales = (-1.0, 0.0, 0.7)
    found = finetune.disentanglement_error(base, tasks, scales)
    x = samples(20)[0], samples(21)[0]
    for i, a in enumerate(scales):
        for j, b in enumerate(scales):
            both = (a * one + b * two).apply(base)
            single = (a * one).apply(base), (b * two).apply(base)
            terms = [float(different_predictions(single[t](x[t]), both(x[t])).mean()) for t in (0, 1)]
            assert found.by_task[:, i, j].tolist() == pytest.approx(terms)
            assert float(found.errors[i, j]) == pytest.approx(sum(terms))
    assert float(found.errors[1, 1]) == 0
    assert len(found.to_pandas()) == 9
    assert plot.disentanglement(found, title="a and b").get_xlabel() == "scale of a"


def test_refusals() -> None:
    with pytest.raises(TangentError, match="There are 1 tasks"):
        finetune.disentanglement_error(network(), {"a": (TaskVector({}), samples(0)[0])})
    with pytest.raises(TangentError, match="no test samples of b"):
        finetune.addition(network(), {"a": TaskVector({}), "b": TaskVector({})}, {"a": samples(0)})
    with pytest.raises(TangentError, match="no targets"):
        finetune.addition(network(), {"a": TaskVector({})}, {"a": samples(0)[0]})
    with pytest.raises(TangentError, match="There are 1 tasks"):
        finetune.task_arithmetic(network(), {"a": (samples(0),) * 3}, SPEC)
    with pytest.raises(TangentError, match="not a share"):
        finetune.negation(network(), TaskVector({}), samples(0), samples(1), keep=2)
    with pytest.raises(TangentError, match="no grid"):
        plot.disentanglement(torch.zeros(2))
