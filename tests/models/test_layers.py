"""Initializations, the NTK parameterization and SAME padding, each against its definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import nn

from tangentlab import models
from tangentlab.models._layers import Layers, SamePadding


@pytest.mark.parametrize("shape", [(400, 500), (64, 32, 5, 5)])
def test_lecun_normal_is_the_corrected_truncated_normal_of_jax(shape):
    torch.manual_seed(0)
    weight = models.lecun_normal_(torch.empty(shape))
    fan_in = math.prod(shape[1:])
    sample = weight.double().flatten().numpy() * math.sqrt(fan_in)
    assert abs(sample.var() - 1) < 0.02  # variance 1 / fan_in after truncation, not before
    scale = 1 / stats.truncnorm(-2, 2).std()
    assert abs(sample).max() <= 2 * scale * (1 + 1e-6)
    assert stats.kstest(sample[:20_000], stats.truncnorm(-2, 2, scale=scale).cdf).pvalue > 1e-3


def test_lecun_networks_have_zero_biases_and_unit_normalisation():
    network = models.build("resnet18", width=1 / 16, init="lecun", seed=0)
    assert torch.all(network.readout.bias == 0)
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert all(torch.all(norm.weight == 1) and torch.all(norm.bias == 0) for norm in norms)


def test_default_is_pytorchs_own_initialisation():
    network = models.build("mlp", input_shape=(1, 4, 4), outputs=3, hidden=(5, 6), seed=11)
    torch.manual_seed(11)
    expected = nn.Sequential(nn.Linear(16, 5), nn.Linear(5, 6), nn.Linear(6, 3))
    for ours, theirs in zip(network.parameters(), expected.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("sigma_b", [0.0, 0.3])
def test_ntk_linear_scales_in_the_forward_pass(sigma_b):
    torch.manual_seed(0)
    layer = models.NTKLinear(300, 200, sigma_w=1.7, sigma_b=sigma_b).double()
    x = torch.randn(4, 300, dtype=torch.float64)
    expected = 1.7 / math.sqrt(300) * x @ layer.weight.T
    if sigma_b:
        expected = expected + sigma_b * layer.bias
    else:
        assert layer.bias is None
    torch.testing.assert_close(layer(x), expected)
    assert abs(layer.weight.var().item() - 1) < 0.02


def test_ntk_convolution_scales_by_channels_times_kernel_area():
    torch.manual_seed(0)
    layer = Layers(init="ntk", sigma_w=1.3, sigma_b=0.2).conv(3, 8, 5, stride=2, padding=1).double()
    x = torch.randn(2, 3, 9, 9, dtype=torch.float64)
    weight, bias = layer.weight * 1.3 / math.sqrt(3 * 25), 0.2 * layer.bias
    torch.testing.assert_close(layer(x), F.conv2d(x, weight, bias, stride=2, padding=1))


def test_ntk_parameterisation_keeps_the_scale_of_activations_at_any_width():
    # Not the seed of the weights: the same seed would draw the same numbers for both.
    x = torch.randn(64, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    shape = {"depth": 4, "input_shape": (1, 8, 8), "outputs": 200}
    for hidden in (256, 2048):
        network = models.build("fcn", hidden=hidden, init="ntk", sigma_b=0.0, seed=0, **shape)
        # With sigma_w^2 = 2 a ReLU layer keeps the second moment, and the linear readout doubles it.
        assert abs(network(x).square().mean().item() - 2) < 0.4, hidden


def test_unknown_to_the_networks_the_recorder_sees_parameters_inside_plain_operations():
    """``F.linear`` must consume the parameter itself, so that a kernel code can recognize the layer."""
    seen = []

    class Spy(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func in (F.linear, F.conv2d, torch.conv2d):
                seen.extend(argument for argument in args if isinstance(argument, nn.Parameter))
            return func(*args, **(kwargs or {}))

    network = models.build("lenet", init="ntk", seed=0)
    with Spy():
        network(torch.zeros(1, 1, 32, 32))
    assert {id(p) for p in seen} == {id(p) for p in network.parameters()}


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 20), kernel=st.integers(1, 5), stride=st.integers(1, 3))
def test_same_padding_gives_ceil_of_size_over_stride_and_puts_the_odd_pixel_last(size, kernel, stride):
    x = torch.ones(1, 1, size, size)
    padded = SamePadding(kernel, stride)(x)
    total = padded.shape[-1] - size
    before = int((padded[0, 0].sum(1) != 0).to(torch.uint8).argmax())
    assert before == total // 2
    if kernel >= stride:  # below that some pixels are seen by no window, and nothing is padded
        assert F.conv2d(padded, torch.ones(1, 1, kernel, kernel), stride=stride).shape[-1] == -(-size // stride)


def test_gelu_is_exact_and_gelu_tanh_is_flaxs():
    x = torch.linspace(-3, 3, 50, dtype=torch.float64)
    exact = x * torch.distributions.Normal(0.0, 1.0).cdf(x)
    tanh = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(Layers("gelu").act()(x), exact, atol=1e-6, rtol=0)
    torch.testing.assert_close(Layers("gelu_tanh").act()(x), tanh)
