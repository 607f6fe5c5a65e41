"""Parameter counts: the papers' and the publishers' own numbers."""

import pytest
import torch

from tangentlab import models


def count(name: str, **arguments: object) -> int:
    with torch.device("meta"):  # shapes only: ResNet200 and AlexNet need not be allocated
        return sum(p.numel() for p in models.build(name, **arguments).parameters())


CIFAR, MNIST32 = (3, 32, 32), (1, 32, 32)

# Each number is published: with the papers, by torchvision (AlexNet), or with the CIFAR ResNets and
# WideResNets that everybody uses (K. Liu's pytorch-cifar; Zagoruyko and Komodakis give 11.0m and 2.7m).
PUBLISHED = [
    ("mlp", {"outputs": 1}, 317_501),
    ("lenet", {"variant": "ortiz2021", "input_shape": CIFAR, "outputs": 1}, 136_121),
    ("lenet", {"variant": "samarin2022", "input_shape": MNIST32}, 61_706),
    ("alexnet", {"outputs": 1000}, 61_100_840),
    ("resnet18", {}, 11_173_962),
    ("resnet34", {}, 21_282_122),
    ("resnet50", {}, 23_520_842),
    ("resnet101", {}, 42_512_970),
    ("resnet152", {}, 58_156_618),
    ("wide_resnet16", {"variant": "standard", "width": 8}, 10_961_370),
    ("wide_resnet16", {"variant": "standard", "width": 4}, 2_748_890),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), PUBLISHED)
def test_published_counts(name, arguments, expected):
    assert count(name, **arguments) == expected


def test_alexnet_with_ten_outputs_is_the_published_network_with_a_smaller_readout():
    assert count("alexnet") == 61_100_840 - (1000 - 10) * (4096 + 1) == 57_044_810


def test_resnet200_adds_sixteen_bottlenecks_to_resnet152s_second_stage():
    # A bottleneck at 512 channels: 1x1 512-128, 3x3 128-128, 1x1 128-512, and their normalizations.
    block = 512 * 128 + 9 * 128 * 128 + 128 * 512 + 2 * (128 + 128 + 512)
    assert count("resnet200") == 58_156_618 + 16 * block


def test_fcn_of_depth_three_has_two_hidden_layers_of_the_exact_width():
    expected = 3072 * 256 + 256 + 256 * 256 + 256 + 256 * 10 + 10
    assert count("fcn", hidden=256) == count("fcn", hidden=128, width=2) == expected


def test_convnet_of_depth_eight_has_seven_convolutions():
    expected = (27 * 16 + 16) + 6 * (9 * 16 * 16 + 16) + 16 * 10 + 10
    assert count("convnet") == expected == 14_538


@pytest.mark.parametrize("k", [1, 4, 16])
def test_two_group_wide_resnet_has_the_widths_of_appendix_a(k):
    with torch.device("meta"):
        network = models.build("wide_resnet16", width=k)
    assert network.stem.weight.shape[0] == 16 * k
    assert [block.residual[0].weight.shape[0] for block in network.blocks] == [16 * k] * 2 + [32 * k] * 2
    assert network.readout.in_features == 32 * k


def test_mohamadis_widening_factor_four_is_the_classical_resnet18():
    widening_factor = 4
    assert count("resnet18", width=widening_factor / 4) == 11_173_962
    with torch.device("meta"):
        wide = models.build("resnet18", width=16 / 4)
    assert wide.stem[0].weight.shape[0] == 16 * 16


@pytest.mark.parametrize("side", [32, 33, 34, 35])
def test_lenet_keeps_its_parameters_on_the_canvas_of_shifted_digits(side):
    assert count("lenet", input_shape=(1, side, side)) == 61_706


@pytest.mark.parametrize("width", [1, 2, 5, 10, 25, 60])
def test_lenet_width_multiplies_every_channel_count_and_hidden_width(width):
    c1, c2, h1, h2 = 6 * width, 16 * width, 120 * width, 84 * width
    expected = (25 * c1 + c1) + (25 * c1 * c2 + c2) + (25 * c2 * h1 + h1) + (h1 * h2 + h2) + (h2 * 10 + 10)
    assert count("lenet", width=width) == expected
    if width == 60:
        assert 210e6 < expected < 222e6  # "networks of up to 216m" parameters
