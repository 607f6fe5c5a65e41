"""Networks that are trained on parts of the data: resuming, engines, damage."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from tangentlab import TangentError, attribution, engines
from tangentlab.attribution import Retraining, retrain
from tests.attribution.problem import SPEC, network, retraining, samples


class Counting:
    """A fit that remembers its calls and may fail at one."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.calls: list[tuple[int, int]] = []
        self.fail_at = fail_at

    def identity(self) -> str:
        return "counting"

    def __call__(self, indices: Tensor, seed: int) -> Tensor:
        if len(self.calls) == self.fail_at:
            raise KeyboardInterrupt
        self.calls.append((int(indices.sum()), seed))
        return torch.tensor([float(indices.sum()), float(seed)])


def test_subsets_are_half_of_the_samples_and_reproducible() -> None:
    found = retrain(Counting(), 30, subsets=4, seeds=2)
    assert found.subsets.sum(1).tolist() == [15] * 4
    assert torch.equal(found.subsets, retrain(Counting(), 30, subsets=6).subsets[:4])
    assert not torch.equal(found.subsets, retrain(Counting(), 30, subsets=4, seed=1).subsets)
    sums = torch.stack([mask.nonzero().sum() for mask in found.subsets]).double()
    assert torch.equal(found.values, torch.stack([sums, torch.full((4,), 0.5, dtype=torch.float64)], 1))


def test_a_rerun_does_what_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        retrain(Counting(fail_at=3), 30, subsets=5, folder=tmp_path)
    again = Counting()
    found = retrain(again, 30, subsets=5, folder=tmp_path)
    assert len(again.calls) == 2
    assert torch.equal(found.values, retrain(Counting(), 30, subsets=5).values)
    path = tmp_path / "subset-00001-seed-000.npz"
    path.write_bytes(path.read_bytes()[:-40])
    repaired = Counting()
    with pytest.warns(UserWarning, match="computed again"):
        assert torch.equal(retrain(repaired, 30, subsets=5, folder=tmp_path).values, found.values)
    assert len(repaired.calls) == 1
    with pytest.raises(TangentError, match="subsets differs"):
        retrain(Counting(), 30, subsets=5, seed=3, folder=tmp_path)
    with pytest.raises(TangentError, match="fit differs"):
        retrain(lambda indices, seed: torch.zeros(2), 30, subsets=5, folder=tmp_path)


def test_engines_agree(tmp_path: Path) -> None:
    task = retraining()
    expected = retrain(task, 40, subsets=3)
    assert expected.values.shape == (3, 6)
    with ThreadPoolExecutor(2) as pool:
        assert torch.equal(retrain(task, 40, subsets=3, engine=pool).values, expected.values)
    first = retrain(task, 40, subsets=3, folder=tmp_path, engine=engines.Shard(0, 2))
    assert first.missing == ((1, 0),)
    second = retrain(task, 40, subsets=3, folder=tmp_path, engine=engines.Shard(0, 1))
    assert torch.equal(second.values, expected.values)


def test_tasks_can_be_pickled() -> None:
    with ProcessPoolExecutor(1) as pool:
        found = retrain(retraining(), 40, subsets=1, engine=pool)
    assert torch.equal(found.values, retrain(retraining(), 40, subsets=1).values)


def test_data_in_all_forms() -> None:
    pairs = samples(40, 0), samples(6, 1)
    expected = Retraining(network, *pairs, SPEC)(torch.arange(20), 1)
    sets = [TensorDataset(*part) for part in pairs]
    assert torch.equal(Retraining(network, *sets, SPEC)(torch.arange(20), 1), expected)
    logits = Retraining(network, *pairs, SPEC).model(torch.arange(20), 1)(pairs[1][0])
    probability = logits.softmax(1)[torch.arange(6), pairs[1][1]]
    torch.testing.assert_close(expected, (probability / (1 - probability)).log().detach())


def test_lds_of_leave_one_out_scores_is_positive() -> None:
    task = retraining()
    found = attribution.attribute(
        [task.model(seed=seed) for seed in range(2)],
        task.train[0],
        task.test[0],
        "exact",
        targets=task.train[1],
        test_targets=task.test[1],
    )
    score = attribution.lds(found, retrain(task, 40, subsets=20), resamples=50)
    assert score.mean > 0.2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"samples": 1}, "samples=1"),
        ({"subsets": 0}, "cannot be drawn"),
        ({"fraction": 1.0}, "cannot be drawn"),
        ({"seeds": 0}, "seeds=0"),
        ({"subsets": []}, "no subsets"),
        ({"subsets": [[0, 99]]}, "outside 0 to 29"),
        ({"subsets": [[0, 0]]}, "one twice"),
        ({"subsets": [torch.zeros(30, dtype=torch.bool)]}, "empty"),
        ({"subsets": [[0.5]]}, "type torch.float32"),
        ({"fit": lambda indices, seed: "text"}, "returned a str"),
        ({"fit": lambda indices, seed: torch.zeros(2, 2)}, "shape"),
        ({"fit": lambda indices, seed: torch.tensor([float("nan")])}, "not finite"),
        ({"engine": 3}, "engine"),
    ],
)
def test_refusals(arguments: dict[str, object], said: str) -> None:
    options: dict[str, object] = {"fit": Counting(), "samples": 30, "subsets": 3} | arguments
    with pytest.raises(TangentError, match=said):
        retrain(**options)  # type: ignore[arg-type]
