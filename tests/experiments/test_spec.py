"""Specs: overrides as from the command line, and what is refused."""

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tangentlab import TangentError
from tangentlab.experiments import Spec, available, get, parse_assignments, spec_of


@dataclass(frozen=True, kw_only=True)
class Example(Spec):
    data: str = "digits"
    widths: tuple[float, ...] = (1.0, 2.0)
    names: tuple[str, ...] = ("a",)
    epochs: int = 10
    n_train: int | None = None
    lr: float = 0.1
    flag: bool = False


SPEC = Example(preset="small")


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("widths", "1,2, 5", (1.0, 2.0, 5.0)),
        ("names", "x", ("x",)),
        ("epochs", "1_000", 1000),
        ("n_train", "none", None),
        ("n_train", "50", 50),
        ("lr", "1e-3", 1e-3),
        ("flag", "yes", True),
        ("flag", "false", False),
        ("data", "mnist", "mnist"),
    ],
)
def test_reads_strings(field: str, text: str, value: Any) -> None:
    assert getattr(SPEC.override({field: text}), field) == value


@given(
    widths=st.lists(st.floats(0, 1e6), min_size=1, max_size=5),
    epochs=st.integers(0, 10**9),
    flag=st.booleans(),
    n_train=st.none() | st.integers(0, 10**9),
)
def test_values_come_back_from_their_text(widths: list[float], epochs: int, flag: bool, n_train: int | None) -> None:
    texts = {"widths": ",".join(map(repr, widths)), "epochs": str(epochs), "flag": str(flag), "n_train": str(n_train)}
    spec = SPEC.override(texts)
    assert (spec.widths, spec.epochs, spec.flag, spec.n_train) == (tuple(widths), epochs, flag, n_train)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"width": "1"}, "Did you mean 'widths'"),
        ({"epochs": "ten"}, "epochs='ten' is not a whole number"),
        ({"widths": "1,two"}, "is not a list of numbers"),
        ({"widths": ","}, "is not a list of numbers"),
        ({"flag": "maybe"}, "is not true or false"),
        ({"lr": "-1"}, "negative"),
        ({"lr": "inf"}, "not finite"),
        ({"epochs": 1.5}, "is not a whole number"),
        ({"seeds": "0"}, "leaves nothing to run"),
        ({"preset": "tiny"}, "no field 'preset'"),
    ],
)
def test_refuses(values: dict[str, Any], message: str) -> None:
    with pytest.raises(TangentError, match=message):
        SPEC.override(values)


def test_assignments() -> None:
    assert parse_assignments(["seeds=3", " widths = 1,2"]) == {"seeds": "3", "widths": "1,2"}
    for wrong in ("seeds", "=3"):
        with pytest.raises(TangentError, match="sets nothing"):
            parse_assignments([wrong])


def test_unknown_names() -> None:
    with pytest.raises(TangentError, match="Did you mean 'ortiz2021/fig2'"):
        get("ortiz2021/fig02")
    with pytest.raises(TangentError, match="ortiz2021/lemma1"):
        get("lemma1")
    with pytest.raises(TangentError, match="no preset 'huge'"):
        spec_of(get("ortiz2021/fig2"), "huge")


def test_every_field_of_every_spec_can_be_set() -> None:
    for experiment in available():
        for spec in experiment.presets.values():
            plain = {name: value for name, value in spec.describe().items() if name != "preset"}
            texts = {k: ",".join(map(str, v)) if isinstance(v, list) else str(v) for k, v in plain.items()}
            assert spec.override(texts) == spec, experiment.id


def test_every_seed_draws_its_own_images() -> None:
    """A replicate differs in weights, minibatches and images; where all images are taken there is nothing to draw."""
    for name in ("ortiz2021/fig2", "samarin2022/fig2", "mohamadi2022/fig3"):
        spec = get(name).presets["small"]
        assert [spec.images(seed).seed for seed in range(3)] == [0, 1, 2]
    whole = get("ortiz2021/fig2").presets["paper"]
    assert whole.images(2) == whole.images(0)
    shifted = get("samarin2022/fig3").presets["paper"]
    assert shifted.images(2) != shifted.images(0)
