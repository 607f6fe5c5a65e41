"""Random shifts of images on a canvas that keeps every pixel."""

from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._seeds import generator
from tangentlab.data import Examples, ImageData

# The largest canvas on which samarin2022's LeNet keeps its 61,706 parameters. A digit is at most 20 pixels wide and
# placed by its center of mass, so about half of MNIST's can take every shift up to 7 there, and the average digit has
# 14.6 of the 15 positions along each side.
SHIFTED_MNIST_CANVAS = 35


@dataclass(frozen=True, eq=False, repr=False)
class Shifts:
    """A transform that moves image i by an offset drawn for it, onto a black canvas.

    Attributes:
        low: (N, 2) int64, the smallest offset (down, right) of each image.
        high: (N, 2) int64, the largest.
        home: Position of the top left corner at offset zero.
        canvas: (height, width).
        entropy: Values that determine the draws, besides the epoch.
        per_epoch: Whether to draw new offsets in every epoch.
        epoch: The epoch.
        rows: (N,) the place of each image in the split that the draws are made for, so that a subset keeps its
            shifts.
        drawn_for: Size of that split.
    """

    low: Tensor
    high: Tensor
    home: tuple[int, int]
    canvas: tuple[int, int]
    entropy: tuple[int, ...]
    per_epoch: bool
    rows: Tensor
    drawn_for: int
    epoch: int = 0

    def __repr__(self) -> str:
        height, width = self.canvas
        return (
            f"Shifts({len(self.rows):,} images on {height} x {width}, per_epoch={self.per_epoch}, epoch={self.epoch})"
        )

    @cached_property
    def offsets(self) -> Tensor:
        """(N, 2) int64, uniform from ``low`` to ``high``, down and right."""
        source = generator("shifts", *self.entropy, self.epoch if self.per_epoch else 0)
        uniform = torch.rand(self.drawn_for, 2, dtype=torch.float64, generator=source)[self.rows]
        return self.low + (uniform * (self.high - self.low + 1)).long()

    def __call__(self, images: Tensor, indices: Tensor) -> Tensor:
        """Place the images (B, C, H, W) of the examples ``indices`` on the canvas, (B, C, *canvas)."""
        corner = self.offsets[indices] + torch.tensor(self.home)
        return _place(images, corner, self.canvas)

    def select(self, indices: Tensor) -> "Shifts":
        """Return the shifts of a subset: every image keeps its own."""
        return replace(self, low=self.low[indices], high=self.high[indices], rows=self.rows[indices])

    def at_epoch(self, epoch: int) -> "Shifts":
        """Return the shifts of that epoch."""
        return replace(self, epoch=epoch) if self.per_epoch and epoch != self.epoch else self


def shifted(
    data: ImageData, max_shift: int = 7, *, canvas: int | None = None, per_epoch: bool = False, seed: int = 0
) -> ImageData:
    """Move every image at random by up to ``max_shift`` pixels down, up, left and right (samarin2022).

    The paper: "randomly translating the digits horizontally and vertically [...] up to 7 pixels (i.e. up to a
    quarter of the image size)". It says neither what becomes of ink that leaves the image nor the canvas. Here no pixel
    that is not black ever leaves:

    - Without ``canvas`` the image grows by ``max_shift`` on each side (28 x 28 to 42 x 42 for 7) and every offset is
      equally likely.
    - With ``canvas`` the image is in the middle of a square of that side, and each image's offsets are uniform over
      those that keep its ink inside. For MNIST's 28 x 28 digits and 7 pixels take ``SHIFTED_MNIST_CANVAS`` = 35, where
      LeNet has the same 61,706 parameters as on the unshifted digits padded to 32.

    Cost: one pass over the images, which are moved when they are read.

    Args:
        data: Any data whose background is 0. Targets stay.
        max_shift: Pixels.
        canvas: Side of the canvas.
        per_epoch: New shifts in every epoch (``train.at_epoch(e)``, which ``batches`` calls); else one draw for good,
            as a solver needs it. The test split is drawn once in any case.
        seed: Seed of the draws; the two splits draw separately.

    Examples:
        >>> from tangentlab import data, tasks
        >>> digits = data.load("digits", n_train=60, n_test=20)
        >>> tuple(tasks.shifted(digits, 2).input_shape)
        (1, 12, 12)

    See also:
        :func:`tangentlab.tasks.random_labels`.
    """
    if isinstance(max_shift, bool) or not isinstance(max_shift, int) or max_shift < 0:
        raise TangentError(f"max_shift={max_shift!r} is not a number of pixels.", remedy="Give 0, 1, 2, ...")
    return replace(
        data,
        name=f"{data.name}, shifted up to {max_shift} pixels",
        train=_shift(data.train, max_shift, canvas, (seed, 0), per_epoch=per_epoch),
        test=_shift(data.test, max_shift, canvas, (seed, 1), per_epoch=False),
    )


def _shift(examples: Examples, most: int, canvas: int | None, entropy: tuple[int, ...], *, per_epoch: bool) -> Examples:
    if examples.transform is not None:
        raise TangentError("These examples are already shifted.", remedy="Shift the original data once.")
    height, width = examples.images.shape[-2:]
    size = (height + 2 * most, width + 2 * most) if canvas is None else (canvas, canvas)
    if size[0] < height or size[1] < width:
        raise TangentError(
            f"A canvas of {size[0]} x {size[1]} does not hold images of {height} x {width}.",
            remedy=f"Give a canvas of at least {max(height, width)}, or none.",
        )
    home = ((size[0] - height) // 2, (size[1] - width) // 2)
    low, high = [], []
    for side, place, free in zip((2, 3), home, size, strict=True):
        first, last = _ink(examples.images, side)
        low.append(-(place + first).clamp(max=most))
        high.append((free - 1 - place - last).clamp(max=most))
    shifts = Shifts(
        torch.stack(low, 1),
        torch.stack(high, 1),
        home,
        size,
        entropy,
        per_epoch,
        torch.arange(len(examples)),
        len(examples),
    )
    return replace(examples, transform=shifts)


def _ink(images: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Return the first and last row (side 2) or column (side 3) with a pixel that is not black, (N,) each.

    An image without ink counts as one whose middle pixel is set.
    """
    other = 3 if side == 2 else 2
    marked = (images != 0).any(1).any(other - 1).to(torch.uint8)
    length = marked.shape[1]
    marked[marked.amax(1) == 0, length // 2] = 1
    return marked.argmax(1), length - 1 - marked.flip(1).argmax(1)


def _place(images: Tensor, corners: Tensor, canvas: tuple[int, int]) -> Tensor:
    """Place image i with its top left corner at ``corners[i]`` (down, right) of a black canvas; the rest is cut off.

    Every image is padded so far that each canvas is a window into it, and the windows are gathered from a view.
    """
    height, width = images.shape[-2:]
    (up, left), (lowest, rightmost) = corners.amin(0).tolist(), corners.amax(0).tolist()
    top, before = max(lowest, 0), max(rightmost, 0)
    bottom, after = max(canvas[0] - height - up, 0), max(canvas[1] - width - left, 0)
    padded = F.pad(images, (before, after, top, bottom))
    windows = padded.unfold(2, canvas[0], 1).unfold(3, canvas[1], 1)
    return windows[torch.arange(len(images)), :, top - corners[:, 0], before - corners[:, 1]]
