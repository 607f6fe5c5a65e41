"""The parts of experiments as data: a network, images, targets, weights at some epoch."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from tangentlab import data, models, tasks
from tangentlab._errors import TangentError
from tangentlab.data import ImageData

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context
    from tangentlab.experiments._eigenpairs import Eigenpairs
    from tangentlab.experiments._training import Training


@dataclass(frozen=True)
class Model:
    """A network by name, as :func:`tangentlab.models.build` takes it.

    Attributes:
        name: The architecture.
        input_shape: (C, H, W).
        outputs: Number of outputs.
        width: Factor on every width.
        init: Initialization.
        activation: Between the layers.
        seed: Seed of the weights.
        options: Names and values of further options of the architecture.
    """

    name: str
    input_shape: tuple[int, int, int]
    outputs: int = 1
    width: float = 1
    init: str = "default"
    activation: str = "relu"
    seed: int = 0
    options: tuple[tuple[str, Any], ...] = ()

    def build(self) -> nn.Module:
        """Build the network in evaluation mode, with its initial weights."""
        return models.build(
            self.name,
            width=self.width,
            input_shape=self.input_shape,
            outputs=self.outputs,
            init=self.init,
            activation=self.activation,
            seed=self.seed,
            **dict(self.options),
        ).eval()


@dataclass(frozen=True)
class Images:
    """A data set or a stratified part of it, padded or shifted.

    Attributes:
        name: A name of :func:`tangentlab.data.load`.
        n_train: Training images; None for all.
        n_test: Test images; None for all.
        seed: Seed of the choice, and of the shifts.
        pad_to: Side of the square that images are padded to.
        shift: Largest random shift in pixels; 0 for none.
        canvas: Side of the canvas for shifts.
    """

    name: str
    n_train: int | None = None
    n_test: int | None = None
    seed: int = 0
    pad_to: int | None = None
    shift: int = 0
    canvas: int | None = None

    def draw(self, seed: int) -> "Images":
        """Return another draw of the images and shifts; the same images where all are taken as they are."""
        drawn = self.n_train is not None or self.n_test is not None or self.shift
        return replace(self, seed=seed) if drawn else self

    def load(self, context: "Context") -> ImageData:
        """Load the images, with their classes as targets."""
        whole = context.load(self.name)
        least = {"n_train": (self.n_train, len(whole.train)), "n_test": (self.n_test, len(whole.test))}
        for what, (wanted, there) in least.items():
            if wanted is not None and wanted > there:
                raise TangentError(
                    f"{what}={wanted:,} exceeds the {there:,} images of {self.name!r}.",
                    remedy=f"Use --set {what}={there}, or a larger data set with --set data=NAME.",
                )
        chosen = whole.subset(self.n_train, self.n_test, self.seed)
        if self.pad_to is not None:
            chosen = chosen.pad_to(self.pad_to)
        return tasks.shifted(chosen, self.shift, canvas=self.canvas, seed=self.seed) if self.shift else chosen

    def shape(self, context: "Context") -> tuple[int, int, int]:
        """Return (C, H, W) of an input. Nothing is loaded if the name of the data set determines it."""
        known = {source.name: source.shape for source in data.available()}.get(self.name)
        channels, height, width = known or context.load(self.name).input_shape
        if self.pad_to is not None:
            height = width = self.pad_to
        if self.shift:
            added = 2 * self.shift
            height, width = (height + added, width + added) if self.canvas is None else (self.canvas, self.canvas)
        return channels, height, width


@dataclass(frozen=True)
class Classes:
    """The class indices as targets."""

    def apply(self, images: ImageData, context: "Context") -> ImageData:
        """Return the images unchanged."""
        return images


@dataclass(frozen=True)
class FirstFive:
    """CIFAR2: the first five of ten classes against the rest."""

    def apply(self, images: ImageData, context: "Context") -> ImageData:
        """Set the targets to -1 and 1."""
        return tasks.cifar2(images)


@dataclass(frozen=True)
class OneVsRest:
    """One class against the rest, with the targets of squared loss."""

    which: int = 0
    values: tuple[float, float] = (-1.0, 1.0)

    def apply(self, images: ImageData, context: "Context") -> ImageData:
        """Set the targets to ``values``."""
        return tasks.binary(images, [self.which], values=self.values)


@dataclass(frozen=True)
class Eigenfunction:
    """sign(phi_j) of a kernel over training and test images (ortiz2021, section 3)."""

    spectrum: "Eigenpairs"
    j: int

    def apply(self, images: ImageData, context: "Context") -> ImageData:
        """Set the targets to -1 and 1."""
        return tasks.eigenfunction(images, self.j, eigenvectors=context.get(self.spectrum)["vectors"])


@dataclass(frozen=True)
class LabeledImages:
    """Images and their targets."""

    stored_as: ClassVar[str] = "Problem"
    images: Images
    targets: Classes | FirstFive | OneVsRest | Eigenfunction

    def load(self, context: "Context") -> ImageData:
        """Load both splits with targets."""
        return self.targets.apply(self.images.load(context), context)


@dataclass(frozen=True)
class Weights:
    """The weights of a network: at initialization, or after some epochs of a run.

    Attributes:
        model: The network.
        training: The run; None for the initialization.
        epoch: Which of the epochs that the run kept; -1 for the last.
    """

    model: Model
    training: "Training | None" = None
    epoch: int = -1

    def build(self, context: "Context", dtype: torch.dtype = torch.float32) -> nn.Module:
        """Build the network in evaluation mode on the context's device."""
        network = self.model.build()
        if self.training is not None:
            network.load_state_dict(context.get(self.training)["weights"][str(self.epoch)])
        return network.to(context.device, dtype).eval()


Rows = Literal["train", "test", "both"]


def inputs(images: ImageData, rows: Rows, count: int | None = None) -> Tensor:
    """Return normalized inputs of a split, or of training rows followed by test rows; the first ``count`` of them."""
    splits = {"train": (images.train,), "test": (images.test,), "both": (images.train, images.test)}[rows]
    whole = torch.cat([split.inputs() for split in splits])
    return whole if count is None else whole[:count]
