"""Correlations of images against automatic differentiation of the convolution, an image at a time."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules import _correlate as correlation
from tangentlab.kernels.rules._correlate import Geometry, correlate, offsets

pytestmark = pytest.mark.filterwarnings("error")  # torch tells of a result that it has to resize

CONVOLVE = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
CASES = {
    "plain": ((7,), (3,), Geometry((1,), (0,), (1,))),
    "strided": ((8,), (3,), Geometry((2,), (0,), (1,))),
    "padded": ((5,), (3,), Geometry((1,), (2,), (1,))),
    "dilated": ((9,), (3,), Geometry((1,), (0,), (3,))),
    "stride larger than the kernel": ((9,), (2,), Geometry((4,), (1,), (1,))),
    "stride that leaves pixels over": ((8,), (2,), Geometry((3,), (0,), (2,))),
    "two axes": ((5, 6), (2, 3), Geometry((2, 1), (1, 0), (1, 2))),
    "padding on both": ((3, 4), (3, 2), Geometry((1, 2), (2, 1), (1, 1))),
    "three axes": ((3, 4, 5), (1, 2, 3), Geometry((1, 2, 1), (0, 1, 2), (1, 1, 2))),
}


def expected(small: Tensor, big: Tensor, geometry: Geometry, kernel: tuple[int, ...]) -> Tensor:
    """By automatic differentiation, for each image, group and map."""
    count, groups, maps = small.shape[:3]
    channels = big.shape[2]
    out = torch.zeros(count, groups, maps, channels, *kernel, dtype=big.dtype)
    for n, g, m in itertools.product(range(count), range(groups), range(maps)):
        weight = torch.zeros(1, channels, *kernel, dtype=big.dtype, requires_grad=True)
        options = {"stride": geometry.stride, "padding": geometry.padding, "dilation": geometry.dilation}
        output = CONVOLVE[len(kernel)](big[n, g][None], weight, **options)[0, 0]
        (out[n, g, m],) = torch.autograd.grad(output, weight, small[n, g, m])
    return out


@pytest.mark.parametrize("copy", [None, 1, 200], ids=lambda copy: f"copy {copy}")
@pytest.mark.parametrize("case", CASES)
def test_correlations(case: str, copy: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of images that are unfolded at a time, and for images that are views."""
    if copy is not None:
        monkeypatch.setattr(correlation, "_COPY", copy)
    size, kernel, geometry = CASES[case]
    torch.manual_seed(0)
    big = torch.randn(5, 2, 3, *size, dtype=torch.float64)
    spans = zip(size, kernel, geometry.stride, geometry.padding, geometry.dilation, strict=True)
    spatial = [(s + 2 * p - d * (k - 1) - 1) // step + 1 for s, k, step, p, d in spans]
    small = torch.randn(5, 2, 4, *spatial, dtype=torch.float64)
    want = expected(small, big, geometry, kernel)
    found = correlate(small, big, geometry, kernel)
    assert found.shape == want.shape
    assert (found - want).norm() <= 1e-12 * want.norm()
    view = torch.cat([big, big], 2)[:, :, 3:]
    assert torch.equal(correlate(small, view, geometry, kernel), found)


LAYERS = {
    # groups, maps and channels per group, the image's size, kernel, stride, padding, positions beyond the usual
    "depthwise 3 x 3": (5, 1, 1, (9, 8), (3, 3), 1, 1, 0),
    "depthwise 3 x 3, strided": (5, 1, 1, (9, 8), (3, 3), 2, 1, 0),
    "depthwise 5 x 5": (5, 1, 1, (7, 7), (5, 5), 1, 2, 0),
    "depthwise 5 x 5, strided": (5, 1, 1, (7, 6), (5, 5), 2, 2, 0),
    "depthwise 7 x 7, larger than the image": (5, 1, 1, (3, 4), (7, 7), 1, 3, 0),
    "depthwise 4 x 2, padded on one side": (5, 1, 1, (6, 6), (4, 2), 1, 1, 1),
    "depthwise, no padding": (5, 1, 1, (6, 7), (3, 4), 3, 0, 0),
    "depthwise 1 x 1": (5, 1, 1, (3, 3), (1, 1), 1, 0, 0),
    "depthwise, several maps": (5, 3, 1, (6, 6), (3, 5), 1, 2, 0),
    "depthwise, a line": (5, 2, 1, (12,), (4,), 1, 3, 0),
    "groups of 8": (3, 8, 8, (8, 8), (3, 3), 1, 1, 0),
    "groups of 8 and 16": (3, 16, 8, (16, 17), (5, 4), 2, 2, 1),
    "one group": (1, 8, 16, (130,), (3,), 2, 0, 0),
}


@pytest.mark.parametrize("images", [None, 1, 1000], ids=lambda images: f"images {images}")
@pytest.mark.parametrize("layer", LAYERS)
def test_library(layer: str, images: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """In single precision many grouped convolutions go through the library's own code, some images at a time."""
    if images is not None:
        monkeypatch.setattr(correlation, "_IMAGES", images)
    groups, maps, channels, size, kernel, stride, padding, more = LAYERS[layer]
    geometry = Geometry((stride,) * len(size), (padding,) * len(size), (1,) * len(size))
    torch.manual_seed(0)
    big = torch.randn(4, groups, channels, *size)
    spatial = [(s + 2 * padding - k) // stride + 1 + more for s, k in zip(size, kernel, strict=True)]
    small = torch.randn(4, groups, maps, *spatial)
    want = correlate(small.double(), big.double(), geometry, kernel)
    monkeypatch.setattr(correlation, "_by_unfolding", None)  # not called
    found = correlate(small, big, geometry, kernel)
    assert found.shape == want.shape
    assert found.is_contiguous()
    assert (found - want).norm() <= 2e-6 * want.norm()
    views = torch.cat([small, small], 2)[:, :, maps:], torch.cat([big, big], 2)[:, :, channels:]
    assert (correlate(*views, geometry, kernel) - want).norm() <= 2e-6 * want.norm()
    reordered = (t.movedim(1, -1).contiguous().movedim(-1, 1) for t in (small, big))  # the channels last in memory
    assert (correlate(*reordered, geometry, kernel) - want).norm() <= 2e-6 * want.norm()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(TypeError):
        correlate(small, big, geometry, kernel)


def test_extra_column_of_an_even_kernel() -> None:
    """Padding "same" pads an even kernel by one more on the right, which the size of the output implies."""
    big, small = torch.randn(2, 1, 3, 5).double(), torch.randn(2, 1, 2, 5).double()
    found = correlate(small, big, Geometry((1,), (1,), (1,)), (4,))
    want = expected(small, F.pad(big, (1, 2)), Geometry((1,), (0,), (1,)), (4,))
    assert (found - want).norm() <= 1e-12 * want.norm()


def test_images_are_unfolded_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer stays within its limit, and holds as many images as fit."""
    seen = []
    original = correlation._windows

    def watched(big: Tensor, *rest: object) -> Tensor:
        seen.append(len(big))
        return original(big, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(correlation, "_windows", watched)
    big, small = torch.randn(7, 2, 3, 6).double(), torch.randn(7, 2, 4, 5).double()
    entries = 2 * (3 * 2) * 5  # groups, columns, positions
    for room, batches in ((1, [1] * 7), (entries, [1] * 7), (3 * entries, [3, 3, 1]), (4 * entries - 1, [3, 3, 1])):
        seen.clear()
        monkeypatch.setattr(correlation, "_COPY", room)
        correlate(small, big, Geometry((1,), (0,), (1,)), (2,))
        assert seen == batches


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("dilation", [1, 2])
def test_spans(step: int, padding: int, dilation: int) -> None:
    """The positions that see inside the image are those whose pixel exists."""
    geometry, size, outputs = Geometry((9, step), (9, padding), (9, dilation)), 5, 4
    for offset in range(4):
        pixels = {t: step * t + dilation * offset - padding for t in range(outputs)}
        inside = {t: p for t, p in pixels.items() if 0 <= p < size}
        to, seen = geometry.span(1, offset, size, outputs)
        assert list(range(outputs)[to]) == list(inside)
        assert list(range(size)[seen]) == list(inside.values())


def test_offsets() -> None:
    assert list(offsets((2, 1, 3))) == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (1, 0, 0), (1, 0, 1), (1, 0, 2)]


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("groups", [1, 8])
def test_few_images_in_single_precision(images: int, groups: int) -> None:
    """Also where PyTorch's own code is taken: one channel per group, or multiples of eight channels."""
    channels = 1 if groups > 1 else 8
    small = torch.randn(images, groups, channels, 9, 9, generator=torch.Generator().manual_seed(0))
    big = torch.randn(images, groups, channels, 11, 11, generator=torch.Generator().manual_seed(1))
    geometry = Geometry((1, 1), (0, 0), (1, 1))
    found = correlate(small, big, geometry, (3, 3))
    expected = correlate(small.double(), big.double(), geometry, (3, 3))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
