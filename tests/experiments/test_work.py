"""Units of work: names, order, cache, workers."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tangentlab import TangentError
from tangentlab.experiments import Context, Settings, Training, UnitOfWork, open_context
from tangentlab.experiments._parts import Classes, Images, LabeledImages, Model
from tangentlab.experiments._work import describe, needs, stages
from tangentlab.training import SGD, SoftmaxCrossEntropy, TrainingSpec


@dataclass(frozen=True)
class Square(UnitOfWork):
    number: int

    def compute(self, context: Context) -> dict[str, Any]:
        return {"value": self.number**2}


@dataclass(frozen=True)
class Total(UnitOfWork):
    parts: tuple[Square, ...]
    scale: float = 1.0

    def compute(self, context: Context) -> dict[str, Any]:
        return {"value": self.scale * sum(context.get(part)["value"] for part in self.parts)}


def context(folder: Path, **options: Any) -> Context:
    return Context(Settings(str(folder)), progress=False, **options)


def test_the_key_is_what_decides_the_result() -> None:
    total = Total((Square(1), Square(2)))
    assert total.key == Total((Square(1), Square(2))).key
    assert len({total.key, Total((Square(2), Square(1))).key, replace(total, scale=2.0).key, Square(1).key}) == 4
    old = total.key
    Square.version = 2
    try:
        assert total.key != old  # a new version of what it needs is another result
    finally:
        Square.version = 1


def test_what_is_needed_comes_first_and_once() -> None:
    total = Total((Square(1), Square(2), Square(1)))
    assert list(needs(total)) == [Square(1), Square(2), Square(1)]
    assert stages([total, Square(2)]) == [[Square(1), Square(2)], [total]]


def test_nothing_is_computed_twice(tmp_path: Path) -> None:
    here = context(tmp_path)
    assert here.map([Total((Square(1), Square(2))), Square(2)]) == [{"value": 5.0}, {"value": 4}]
    assert len(here.computed) == 3
    again = context(tmp_path)
    assert again.get(Total((Square(1), Square(2))))["value"] == 5
    assert again.computed == []
    assert not list(tmp_path.glob("*.lock"))


def test_a_damaged_result_is_computed_again(tmp_path: Path) -> None:
    context(tmp_path).get(Square(3))
    path = next(tmp_path.glob("square-*.pt"))
    path.write_bytes(path.read_bytes()[:-40])
    here = context(tmp_path)
    with pytest.warns(UserWarning, match="damaged"):
        assert here.get(Square(3)) == {"value": 9}
    assert len(here.computed) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert context(tmp_path).get(Square(3)) == {"value": 9}


def test_workers_give_the_same(tmp_path: Path) -> None:
    run = TrainingSpec(epochs=1, batch_size=20, loss=SoftmaxCrossEntropy(), optimizer=SGD(0.1))
    problem = LabeledImages(Images("digits", 40, 20), Classes())
    units = [Training(Model("mlp", (1, 8, 8), 10, seed=seed), problem, run, keep=(-1,)) for seed in range(2)]
    alone = context(tmp_path / "alone").map(units)
    shared = context(tmp_path / "shared", workers=2)
    try:
        together = shared.map(units)
    finally:
        shared.close()
    assert sorted(shared.computed) == sorted(unit.key for unit in units)
    for one, two in zip(alone, together, strict=True):
        assert one["history"]["train_loss"] == pytest.approx(two["history"]["train_loss"], rel=1e-5)
        for name, tensor in one["weights"]["-1"].items():
            torch.testing.assert_close(tensor, two["weights"]["-1"][name])


def test_a_run_that_diverges_falls_back(tmp_path: Path) -> None:
    run = TrainingSpec(epochs=3, batch_size=20, loss=SoftmaxCrossEntropy(), optimizer=SGD(1e9))
    problem = LabeledImages(Images("digits", 40, 20), Classes())
    unit = Training(Model("mlp", (1, 8, 8), 10), problem, run)
    here = context(tmp_path)
    lost = here.get(unit)
    assert "diverged" in lost["status"]
    saved = here.get(replace(unit, fallback_lr=0.1))
    assert (saved["status"], saved["lr"]) == ("finished", 0.1)


def test_a_run_that_learns_nothing_falls_back(tmp_path: Path) -> None:
    run = TrainingSpec(epochs=20, batch_size=20, loss=SoftmaxCrossEntropy(), optimizer=SGD(1e-9))
    unit = Training(
        Model("mlp", (1, 8, 8), 10), LabeledImages(Images("digits", 40, 20), Classes()), run, fallback_lr=0.1
    )
    result = context(tmp_path).get(unit)
    assert result["lr"] == 0.1
    assert result["history"]["train_loss"][-1] < 0.9 * result["history"]["train_loss"][0]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(TangentError, match="cannot be written to"):
        open_context("/proc/tangentlab")
    with pytest.raises(TangentError, match="workers=0"):
        context(tmp_path, workers=0)
    with pytest.raises(TangentError, match=r"n_train=9,999 exceeds the 1,437 images of 'digits'"):
        Images("digits", 9_999).load(context(tmp_path))


def test_other_files_of_a_data_set_are_not_mixed_in(tmp_path: Path) -> None:
    here = context(tmp_path)
    here.load("digits")
    here.cache.write_note("data-digits", {"digest": "another"})
    with pytest.raises(TangentError, match="other files of 'digits'"):
        context(tmp_path).load("digits")


def test_title_holds_the_values_of_the_fields() -> None:
    model = Model("mlp", (1, 8, 8), 10, width=2)
    run = TrainingSpec(epochs=1, batch_size=20, loss=SoftmaxCrossEntropy(), optimizer=SGD(0.1))
    unit = Training(model, LabeledImages(Images("digits", 40, 20), Classes()), run, "linearized")
    assert unit.title == "training mlp x2 (linearized)"
    assert "shown_as" not in describe(unit)
