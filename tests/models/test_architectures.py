"""Properties of every network, and the two LeNets against their plain formulas."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, jacrev, vmap

from tangentlab import models

# Small forms of every architecture, on the smallest sensible inputs.
SMALL = {
    "mlp": {"input_shape": (1, 8, 8), "hidden": (5, 4)},
    "fcn": {"input_shape": (1, 8, 8), "hidden": 6},
    "lenet": {"input_shape": (1, 16, 16), "width": 0.5},
    "alexnet": {"input_shape": (1, 63, 63), "width": 1 / 64},
    "convnet": {"input_shape": (1, 8, 8), "width": 0.25},
    **{f"resnet{d}": {"input_shape": (1, 8, 8), "width": 1 / 16} for d in (18, 34, 50, 101, 152, 200)},
    "wide_resnet16": {"input_shape": (1, 8, 8), "width": 0.25},
}


def test_the_small_forms_cover_the_registry():
    assert set(SMALL) == {architecture.name for architecture in models.available()}


@pytest.mark.parametrize("init", models.INITS)
@pytest.mark.parametrize("name", SMALL)
def test_evaluation_treats_every_sample_on_its_own(name, init):
    arguments = SMALL[name]
    network = models.build(name, outputs=3, init=init, seed=0, **arguments).double().eval()
    x = torch.randn(3, *arguments["input_shape"], dtype=torch.float64)
    together = network(x)
    assert together.shape == (3, 3)
    assert torch.isfinite(together).all()
    torch.testing.assert_close(together, torch.cat([network(x[i : i + 1]) for i in range(3)]))


@pytest.mark.parametrize("name", ["mlp", "fcn", "lenet", "alexnet", "convnet", "resnet18", "resnet50", "wide_resnet16"])
@pytest.mark.parametrize("init", ["default", "ntk"])
def test_torch_func_differentiates_every_network(name, init):
    arguments = SMALL[name]
    network = models.build(name, outputs=2, activation="gelu", init=init, seed=0, **arguments).double().eval()
    x = torch.randn(2, *arguments["input_shape"], dtype=torch.float64)
    weights = {key: value.detach() for key, value in network.named_parameters()}

    def output(parameters, sample):
        return functional_call(network, parameters, (sample[None],))[0]

    jacobian = vmap(jacrev(output), (None, 0))(weights, x)
    expected = torch.autograd.grad(network(x[1:])[0, 1], list(network.parameters()))
    for key, gradient in zip(weights, expected, strict=True):
        torch.testing.assert_close(jacobian[key][1, 1], gradient)


@pytest.mark.parametrize("name", SMALL)
def test_nothing_works_in_place_and_nothing_is_random(name):
    network = models.build(name, **SMALL[name])
    assert not any(getattr(module, "inplace", False) for module in network.modules())
    assert not any(isinstance(module, nn.Dropout) for module in network.modules())


@pytest.mark.parametrize("name", SMALL)
def test_a_seed_fixes_the_weights_and_spares_the_global_generator(name):
    before = torch.random.get_rng_state()
    first, second, other = (models.build(name, seed=s, **SMALL[name]).state_dict() for s in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("variant", ["ortiz2021", "samarin2022"])
def test_lenet_is_its_formula(variant):
    network = models.build("lenet", variant=variant, input_shape=(3, 32, 32), seed=0)
    x = torch.randn(2, 3, 32, 32)
    p = list(network.parameters())
    padding, pool = (2, F.avg_pool2d) if variant == "ortiz2021" else (0, F.max_pool2d)
    h = pool(F.relu(F.conv2d(x, p[0], p[1], padding=padding)), 2)
    h = pool(F.relu(F.conv2d(h, p[2], p[3], padding=padding)), 2).flatten(1)
    for weight, bias in ((p[4], p[5]), (p[6], p[7])):
        h = F.relu(F.linear(h, weight, bias))
    torch.testing.assert_close(network(x), F.linear(h, p[8], p[9]))


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_zero_init_residual_starts_every_block_as_its_shortcut(name):
    network = models.build(name, width=1 / 16, zero_init_residual=True, seed=0).eval()
    x = torch.randn(2, 3, 8, 8)
    h = network.stem(x)
    for block in network.blocks:
        assert torch.all(block.last_norm.weight == 0)
        torch.testing.assert_close(block(h), F.relu(block.shortcut(h)))
        h = block(h)
    plain = models.build(name, width=1 / 16, seed=0)
    assert all(torch.all(block.last_norm.weight == 1) for block in plain.blocks)


def test_resnet_halves_the_image_three_times_and_same_padding_moves_the_windows():
    torch_padding = models.build("resnet18", width=1 / 16, seed=0).eval()
    same_padding = models.build("resnet18", width=1 / 16, seed=0, padding="same").eval()
    x = torch.randn(2, 3, 32, 32)
    assert torch_padding.blocks(torch_padding.stem(x)).shape[-2:] == (4, 4)
    assert same_padding.blocks(same_padding.stem(x)).shape[-2:] == (4, 4)
    for ours, theirs in zip(torch_padding.parameters(), same_padding.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.allclose(torch_padding(x), same_padding(x))


def test_wide_resnet_block_is_pre_activation():
    network = models.build("wide_resnet16", width=0.5, seed=0).eval()
    first, *_, changing = network.blocks[:3]
    h = torch.randn(2, 8, 8, 8)
    torch.testing.assert_close(first(h), h + first.residual(F.relu(first.preactivation[0](h))))
    activated = F.relu(changing.preactivation[0](h))
    torch.testing.assert_close(changing(h), changing.shortcut(activated) + changing.residual(activated))


def test_alexnet_sees_224_pixels_as_six_by_six_features():
    with torch.device("meta"):
        network = models.build("alexnet")
        assert network.features[:13](torch.empty(1, 3, 224, 224)).shape == (1, 256, 6, 6)
        assert network(torch.empty(1, 3, 224, 224)).shape == (1, 10)


@settings(max_examples=25, deadline=None)
@given(
    name=st.sampled_from(["mlp", "lenet", "convnet", "resnet18", "wide_resnet16"]),
    width=st.sampled_from([0.1, 0.5, 1, 1.5]),
    channels=st.integers(1, 4),
    height=st.integers(16, 40),
    wide=st.integers(16, 40),
    outputs=st.integers(1, 5),
)
def test_any_shape_and_width_gives_a_network_of_that_shape(name, width, channels, height, wide, outputs):
    with torch.device("meta"):
        network = models.build(name, width=width, input_shape=(channels, height, wide), outputs=outputs)
        assert network(torch.empty(2, channels, height, wide)).shape == (2, outputs)
