"""Samples as images."""

import matplotlib.pyplot as plt
import pytest
import torch

from tangentlab import TangentError, plot


@pytest.mark.parametrize("shape", [(7, 5, 4), (7, 1, 5, 4), (7, 3, 5, 4)])
def test_every_sample_is_drawn_in_its_place(shape: tuple[int, ...]) -> None:
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0)) * 5 - 2
    axes = plot.samples(images, titles=[f"n{i}" for i in range(7)], columns=4)
    assert axes.shape == (2, 4)
    assert [ax.get_title() for ax in axes.flat] == [f"n{i}" for i in range(7)] + [""]
    drawn = torch.as_tensor(axes[1, 2].images[0].get_array().data)
    last = images[6].movedim(0, -1).squeeze(-1) if images.ndim == 4 else images[6]
    torch.testing.assert_close(drawn, (last - last.min()) / (last.max() - last.min()))
    assert not axes[1, 3].images
    plt.close("all")


def test_what_is_not_an_image_is_refused() -> None:
    for shape in [(3,), (3, 5), (3, 2, 4, 4), (0, 4, 4), (3, 1, 4)]:
        with pytest.raises(TangentError, match="not images"):
            plot.samples(torch.zeros(shape))
    with pytest.raises(TangentError, match="1 titles"):
        plot.samples(torch.zeros(2, 4, 4), titles=["a"])
