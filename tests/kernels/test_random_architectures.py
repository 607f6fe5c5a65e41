"""The kernels of random networks against their definition: every block alone, and mixtures of all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tangentlab
from tests.kernels.architectures import ACTIVATIONS, ENTRIES, EXITS, JOINS, Architecture, Step, build, simpler
from tests.kernels.blocks import BLOCKS
from tests.kernels.case import Case
from tests.kernels.strategies import QUICK, architectures, check

pytestmark = pytest.mark.filterwarnings("ignore:The rules do not describe", "ignore::DeprecationWarning")
RULED = (
    *("linear", "flat_linear", "mixer", "bottleneck", "whole", "pooled", "twice", "both_ways", "glu", "swiglu", "lora"),
    *("weight_norm", "ntk_linear", "conv1d", "depthwise", "causal", "strided", "conv2d", "transposed1d", "frames"),
    *("batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm", "prelu", "attention", "encoder"),
    *("attention_by_hand", "rotary", "positions", "scale", "shift", "split_features", "coupling", "siamese"),
)
"""Blocks whose parameters all have rules."""


def variants(kind: str) -> list[dict[str, object]]:
    """Options of a block such that each value of each option is among them, and mixtures of options are."""
    options = BLOCKS[kind].options
    longest = max(map(len, options.values()), default=1)
    plain = {name: values[0] for name, values in options.items()}
    mixed = [{name: values[i % len(values)] for name, values in options.items()} for i in range(longest)]
    alone = [plain | {name: value} for name, values in options.items() for value in values[1:] if longest < 10]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(chosen.items()) for chosen in (*mixed, *alone))]


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_every_block(kind: str) -> None:
    """Each block with each of its options, between two others, so that gradients pass through it."""
    for options in variants(kind):
        first, last = Step("linear", {"bias": True}, "tanh"), Step("linear", {"bias": False})
        steps = (first, Step(kind, options, "in place"), last)
        check(Architecture(steps, seed=3, positions=3, outputs=2, samples=4), "definition")


@pytest.mark.parametrize("join", JOINS)
def test_every_join(join: str) -> None:
    for number, activation in enumerate(ACTIVATIONS):
        steps = (
            Step("linear", {"bias": True}, activation, join),
            Step("conv1d", variants("conv1d")[0], activation, join),
        )
        exit = EXITS[number % len(EXITS)]
        assert check(Architecture(steps, positions=3, outputs=2, samples=3, exit=exit), "definition")


@pytest.mark.parametrize("entry", ENTRIES)
@pytest.mark.parametrize("exit", EXITS)
def test_every_entry_and_exit(entry: str, exit: str) -> None:
    steps = Step("linear", {"bias": True}, "gelu"), Step("linear", {"bias": True}, "tanh", tied=0)
    assert check(Architecture(steps, positions=2, outputs=2, samples=3, entry=entry, exit=exit), "definition")


@given(architectures())
@settings(QUICK, max_examples=100)
def test_random_network(architecture: Architecture) -> None:
    check(architecture, "definition")


@pytest.mark.parametrize("count", [25, pytest.param(100, marks=pytest.mark.soak)])
def test_random_network_with_targets(count: int) -> None:
    @given(architectures())
    @settings(QUICK, max_examples=count)
    def holds(architecture: Architecture) -> None:
        check(architecture, "labeled")

    holds()


def test_most_parameters_have_rules() -> None:
    seen = 0

    @given(architectures(RULED), st.integers(3, 5))
    @settings(QUICK, max_examples=40)
    def count(architecture: Architecture, samples: int) -> None:
        nonlocal seen
        model, x = build(architecture)
        if architecture.samples == 1:
            return  # one sample alone does not show where the samples of a batch lie
        table = tangentlab.explain(model, x)
        assert set(table.operation[table.form == "fallback"]) <= {"recording changes the outputs"}
        seen += len(table)

    count()
    assert seen > 100


def test_descriptions_are_plain_and_repeatable() -> None:
    """The same description gives the same network, its text gives it back, and simpler ones are simpler."""

    @given(architectures())
    @settings(QUICK, max_examples=15)
    def repeatable(architecture: Architecture) -> None:
        again = eval(repr(architecture), {"Architecture": Architecture, "Step": Step})
        assert again == architecture
        one, two = Case(architecture), Case(again)
        for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True):
            assert torch.equal(a, b)
        for other in simpler(architecture):
            assert other != architecture
            assert len(other.steps) <= len(architecture.steps)
            build(other)

    repeatable()
