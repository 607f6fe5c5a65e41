"""The registry as data, and the refusals of ``build``."""

import pytest
import torch

from tangentlab import TangentError, models


def test_every_entry_says_what_it_is_and_builds_with_its_defaults():
    for architecture in models.available():
        assert architecture.summary
        assert any(paper in architecture.source for paper in ("ortiz2021", "samarin2022", "mohamadi2022"))
        network = models.build(architecture.name, width=1 / 16).eval()
        with torch.no_grad():
            assert network(torch.zeros(1, *architecture.input_shape)).shape == (1, 10)


def test_every_choice_of_every_option_builds():
    built = 0
    for architecture in models.available():
        for key, option in architecture.options.items():
            for choice in option.choices or (option.default,):
                with torch.device("meta"):
                    models.build(architecture.name, **{key: choice})
                built += 1
    assert built >= 20


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("lenett", {}, "Did you mean 'lenet'?"),
        ("ResNet18", {}, "Did you mean 'resnet18'?"),
        ("transformer-xl", {}, "The names are mlp, fcn, lenet"),
        ("lenet", {"varient": "ortiz2021"}, "Did you mean 'variant'?"),
        ("mlp", {"zero_init_residual": True}, "'mlp' has no option 'zero_init_residual'"),
        ("lenet", {"variant": "ortiz"}, "Did you mean 'ortiz2021'?"),
        ("lenet", {"activation": "ReLu6"}, "Did you mean 'relu'?"),
        ("lenet", {"init": "lecunn"}, "Did you mean 'lecun'?"),
        ("lenet", {"width": 0}, "width=0 is not a positive number"),
        ("lenet", {"width": float("nan")}, "width=nan is not a positive number"),
        ("lenet", {"outputs": 0}, "outputs must be a positive integer, not 0"),
        ("lenet", {"outputs": 2.0}, "outputs must be a positive integer, not 2.0"),
        ("mlp", {"input_shape": (784,)}, "does not have three entries"),
        ("mlp", {"input_shape": 784}, "does not have three entries"),
        ("mlp", {"input_shape": (1, 28, 0)}, "every entry of input_shape must be a positive integer"),
        ("mlp", {"hidden": 100}, "hidden=100 is not a list of widths"),
        ("mlp", {"hidden": (100, -1)}, "every item of hidden must be a positive integer"),
        ("fcn", {"depth": 1}, "depth=1 leaves no hidden layer"),
        ("resnet18", {"zero_init_residual": "yes"}, "zero_init_residual='yes' is neither True nor False"),
        ("mlp", {"sigma_w": 1.0}, "sigma_w given with init='default'"),
        ("mlp", {"init": "ntk", "sigma_w": 0.0}, "sigma_w=0.0 is not a scale"),
    ],
)
def test_refusals_name_the_mistake_and_what_would_do(name, arguments, expected):
    with pytest.raises(TangentError) as refusal:
        models.build(name, **arguments)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "arguments", "smallest"),
    [("lenet", {}, 16), ("lenet", {"variant": "ortiz2021"}, 4), ("alexnet", {}, 63)],
)
def test_too_small_inputs_are_refused_with_the_smallest_that_works(name, arguments, smallest):
    with torch.device("meta"):
        network = models.build(name, input_shape=(1, smallest, smallest), **arguments)
        assert network(torch.empty(1, 1, smallest, smallest)).shape == (1, 10)
    with pytest.raises(TangentError, match=f"The smallest input is {smallest} x {smallest}"):
        models.build(name, input_shape=(1, smallest, smallest - 1), **arguments)


def test_the_networks_that_fit_the_embedded_digits():
    for architecture in models.available():
        options = {"variant": "ortiz2021"} if architecture.name == "lenet" else {}
        if architecture.name == "alexnet":
            with pytest.raises(TangentError, match="The smallest input is 63 x 63"):
                models.build("alexnet", input_shape=(1, 8, 8))
            continue
        network = models.build(architecture.name, input_shape=(1, 8, 8), width=1 / 16, **options).eval()
        assert network(torch.zeros(2, 1, 8, 8)).shape == (2, 10)
    with pytest.raises(TangentError, match='variant="ortiz2021" takes sides from 4'):
        models.build("lenet", input_shape=(1, 8, 8))
