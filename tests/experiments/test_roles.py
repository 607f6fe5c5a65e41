"""What a field of a spec is: declared on the field, kept by subclasses, and read when runs are compared."""

from dataclasses import dataclass, field, fields, replace

import pytest

from tangentlab import TangentError
from tangentlab.experiments import Scope, Spec, available, get, spec_of
from tangentlab.experiments._roles import (
    DATA,
    EPOCHS,
    FOUND,
    LABEL,
    MODELS,
    ROWS,
    SIZES,
    TRAIN_IMAGES,
    only_with,
    role,
)
from tangentlab.experiments._scale import differences, scope_of, unlike_paper


@dataclass(frozen=True, kw_only=True)
class Own(Spec):
    """A spec that no table of the package knows."""

    source: str = field(default="mnist", metadata=DATA)
    pictures: int | None = field(default=100, metadata=TRAIN_IMAGES)
    rounds: int = field(default=10, metadata=EPOCHS)
    networks: tuple[str, ...] = field(default=("wide", "deep"), metadata=MODELS)
    depth_of_deep: int = field(default=3, metadata=only_with("deep"))
    points: tuple[int, ...] = field(default=(10, 20), metadata=SIZES)
    columns: tuple[int, ...] = field(default=(1, 2), metadata=ROWS)
    note: str = field(default="", metadata=LABEL)
    rate: float = 0.1
    rates: tuple[float, ...] = (0.1,)


@dataclass(frozen=True, kw_only=True)
class Other(Own):
    """Another default is the same field."""

    columns: tuple[int, ...] = (3,)
    pictures: int | None = 200


PAPER = Own(preset="paper")


@pytest.mark.parametrize("kind", [Own, Other])
def test_settings_rows_and_labels(kind: type[Own]) -> None:
    base = kind(preset="paper")
    for name, value in {"columns": (5,), "points": (20,), "note": "x", "seeds": 4, "seed": 3, "device": "cuda"}.items():
        assert unlike_paper(base.override({name: value}), base) == "", name
    for name, value in {"rate": 0.2, "rates": (0.1, 0.2), "rounds": 11, "pictures": 201}.items():
        assert f"{name} = " in unlike_paper(base.override({name: value}), base)


def test_a_setting_of_a_model_that_is_not_run() -> None:
    changed = replace(PAPER, depth_of_deep=4)
    assert "depth_of_deep = 4 (paper: 3)" in unlike_paper(changed, PAPER)
    assert unlike_paper(replace(changed, networks=("wide",)), PAPER) == ""


def test_what_a_scope_says() -> None:
    assert scope_of(PAPER, PAPER) == (Scope.PUBLISHED, "")
    for changes, scope, reason in (
        ({"pictures": 99}, Scope.REDUCED, "pictures = 99 (paper: 100)"),
        ({"points": (10, 19)}, Scope.REDUCED, "points = 10, 19 (paper: 10, 20)"),
        ({"points": (5, 30)}, Scope.PUBLISHED, ""),
        ({"source": "cifar10"}, Scope.OTHER, "cifar10 in place of mnist"),
    ):
        assert scope_of(replace(PAPER, **changes), PAPER) == (scope, reason)


def test_all_images_are_counted() -> None:
    assert differences(replace(PAPER, pictures=60_000), replace(PAPER, pictures=None)) == {}
    assert differences(replace(PAPER, note="x", seed=1), PAPER) == {}


def test_what_is_found_cannot_be_set() -> None:
    found = [item.name for item in fields(Spec) if role(Spec, item.name) == FOUND["role"]]
    assert found == ["preset"]
    for name in found:
        with pytest.raises(TangentError, match=f"no field '{name}' to set"):
            PAPER.override({name: "small"})


@pytest.mark.parametrize("experiment", available(), ids=lambda experiment: experiment.id)
def test_lists_are_declared(experiment: object) -> None:
    """A list chooses rows or is a setting as a whole; which of them is never left to a default."""
    kind = type(get(experiment.id).presets["paper"])  # type: ignore[attr-defined]
    whole = {"linear_lr", "linear_weight_decay"}
    for item in fields(kind):
        if str(item.type).startswith("tuple"):
            assert role(kind, item.name).setting == (item.name in whole), item.name


def test_nothing_is_trained_by_a_solver_alone() -> None:
    assert spec_of(get("samarin2022/table1"), "small").trains
    assert not spec_of(get("samarin2022/table1"), "small", {"methods": ("solver",)}).trains
