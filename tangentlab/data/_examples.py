"""One split of a data set: images, labels and targets."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import Dataset

from tangentlab._deprecated import renamed_arguments, warn
from tangentlab._errors import TangentError
from tangentlab._seeds import generator
from tangentlab.data._normalization import Normalization
from tangentlab.data._subset import stratified


class Transform(Protocol):
    """A change of images that depends on which example it is, and possibly on the epoch."""

    def __call__(self, images: Tensor, indices: Tensor) -> Tensor:
        """Change the images (B, C, H, W) of the examples ``indices`` (B,)."""
        ...

    def select(self, indices: Tensor) -> Self:
        """Return the same change for a subset of the examples."""
        ...

    def at_epoch(self, epoch: int) -> Self:
        """Return the change as it is in that epoch."""
        ...


@renamed_arguments(normalisation="normalization")
@dataclass(frozen=True, eq=False, repr=False)
class Examples(Dataset[tuple[Tensor, Tensor]]):
    """A split, stored in memory as uint8 and normalized when it is read. It is a torch ``Dataset``.

    ``len(examples)``, ``examples[i]`` and a ``DataLoader`` work as with any map-style data set; a loader
    reads whole batches at once through ``__getitems__``. :meth:`batches` is the shortest way without one.

    Attributes:
        images: (N, C, H, W), uint8 pixels; or floating point, used as they are.
        labels: (N,) int64, the class of each example. No task but random labels changes them.
        normalization: Turns uint8 images into inputs; None only with floating-point images.
        task_targets: Targets of a task in place of the labels, (N, outputs) floating point or (N,) int64.
        transform: Changes images as they are read, before normalization (random shifts).
    """

    images: Tensor
    labels: Tensor
    normalization: Normalization | None = None
    task_targets: Tensor | None = None
    transform: Transform | None = None

    def __post_init__(self) -> None:
        count = len(self.images)
        if self.images.ndim != 4 or count == 0:
            raise TangentError(
                f"Images must be (N, C, H, W) with N > 0, not {tuple(self.images.shape)}.",
                remedy="Add the missing dimensions, for example images[:, None] for one channel.",
            )
        for what, values in (("labels", self.labels), ("targets", self.targets)):
            if len(values) != count:
                raise TangentError(f"There are {count} images and {len(values)} {what}.")
        if self.images.dtype == torch.uint8 and self.normalization is None:
            raise TangentError(
                "The uint8 images have no normalization.",
                why="Networks take floating-point inputs.",
                remedy="Pass normalization=Normalization.of(images).",
            )

    @property
    def normalisation(self) -> Normalization | None:
        """The former name of :attr:`normalization`."""
        warn("Examples.normalisation", "Examples.normalization")
        return self.normalization

    @property
    def targets(self) -> Tensor:
        """The targets to learn: the task's targets, or the labels."""
        return self.labels if self.task_targets is None else self.task_targets

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an input, transform included."""
        channels, height, width = self.inputs(torch.zeros(1, dtype=torch.int64)).shape[1:]
        return channels, height, width

    def __repr__(self) -> str:
        channels, height, width = self.input_shape
        pixels = str(self.images.dtype).removeprefix("torch.")
        targets = f"{str(self.targets.dtype).removeprefix('torch.')} {tuple(self.targets.shape[1:])}"
        return f"Examples({len(self):,} of {channels} x {height} x {width} {pixels}, targets {targets})"

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} of {len(self)} examples")  # ends a plain for loop
        inputs, targets = self.batch([index % len(self)])
        return inputs[0], targets[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return a batch for a ``DataLoader``: one gather and one normalization for all of it."""
        inputs, targets = self.batch(indices)
        return list(zip(inputs.unbind(), targets.unbind(), strict=True))

    def inputs(self, indices: Tensor | Sequence[int] | None = None, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return normalized inputs (B, C, H, W) of the given examples, or of all."""
        everything = indices is None
        indices = torch.arange(len(self)) if indices is None else torch.as_tensor(indices)
        images = self.images if everything else self.images[indices]
        if self.transform is not None:
            images = self.transform(images, indices)
        if self.normalization is not None:
            return self.normalization(images, dtype)
        return images.to(dtype, copy=everything)  # never the stored images themselves, which a caller may change

    def batch(self, indices: Tensor | Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return inputs (B, C, H, W) and targets (B, ...) of the given examples."""
        indices = torch.as_tensor(indices)
        return self.inputs(indices), self.targets[indices]

    def batches(
        self, batch_size: int, *, seed: int | None = None, epoch: int = 0, drop_last: bool = False
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield all examples, one batch at a time.

        Args:
            batch_size: Examples in a batch; the last one may be smaller.
            seed: Shuffles, differently in every epoch and equally for equal (seed, epoch), so that a network
                and its linearization can share their minibatches (samarin2022). None keeps the order.
            epoch: Which epoch this is.
            drop_last: Whether to leave out an incomplete last batch (ortiz2021, code).
        """
        examples = self.at_epoch(epoch)
        order = torch.arange(len(self))
        if seed is not None:
            order = torch.randperm(len(self), generator=generator("shuffle", seed, epoch))
        for indices in order.split(batch_size):
            if len(indices) == batch_size or not drop_last:
                yield examples.batch(indices)

    def at_epoch(self, epoch: int) -> "Examples":
        """Return the examples as they are in that epoch: unchanged, unless a transform depends on the epoch."""
        if self.transform is None:
            return self
        return replace(self, transform=self.transform.at_epoch(epoch))

    def select(self, indices: Tensor | Sequence[int]) -> "Examples":
        """Return the given examples, in the given order."""
        indices = torch.as_tensor(indices)
        return replace(
            self,
            images=self.images[indices],
            labels=self.labels[indices],
            task_targets=None if self.task_targets is None else self.task_targets[indices],
            transform=None if self.transform is None else self.transform.select(indices),
        )

    def subset(self, n: int, seed: int = 0) -> "Examples":
        """Draw ``n`` examples, every class in proportion; equal seeds give equal subsets."""
        return self.select(stratified(self.labels, n, generator("subset", seed)))

    def with_targets(self, targets: Tensor) -> "Examples":
        """Return the same images with other targets."""
        return replace(self, task_targets=targets)

    def pad_to(self, size: int) -> "Examples":
        """Center the images on a black square of side ``size``; MNIST for LeNet-5 is padded to 32."""
        height, width = self.images.shape[-2:]
        down, across = size - height, size - width
        if min(down, across) < 0:
            raise TangentError(
                f"Images of {height} x {width} cannot be padded to {size} x {size}.",
                remedy=f"Give a size of at least {max(height, width)}.",
            )
        if self.transform is not None:
            raise TangentError(
                "These examples are already shifted and cannot be padded.",
                remedy="Pad first, or choose the canvas of the shifts.",
            )
        sides = (across // 2, across - across // 2, down // 2, down - down // 2)
        return replace(self, images=F.pad(self.images, sides))

    def to(self, device: torch.device | str) -> "Examples":
        """Move images, labels and targets to another device; pixels are then normalized there."""
        if self.transform is not None:
            raise TangentError(
                "Shifted examples stay on the CPU.", remedy="Move the batches instead: inputs.to(device)."
            )
        moved = None if self.task_targets is None else self.task_targets.to(device)
        return replace(self, images=self.images.to(device), labels=self.labels.to(device), task_targets=moved)
