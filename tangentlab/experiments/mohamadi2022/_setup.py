"""The setup common to the paper's experiments: four architectures by width, SGD, statistics at a few epochs."""

from dataclasses import dataclass, field

from tangentlab._errors import TangentError
from tangentlab.experiments._context import Context
from tangentlab.experiments._parts import Classes, Images, LabeledImages, Model, Weights
from tangentlab.experiments._roles import (
    BATCH_SIZE,
    CHECKPOINTS,
    DATA,
    EPOCHS,
    MODELS,
    ROWS,
    TEST_IMAGES,
    TRAIN_IMAGES,
    only_with,
)
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._training import Training, TrainingOutcome, outcome
from tangentlab.training import SGD, Loss, SoftmaxCrossEntropy, Squared, TrainingSpec

ARCHITECTURES = {"fcn": "FCN", "convnet": "ConvNet", "resnet18": "ResNet18", "wide_resnet16": "WideResNet-16-k"}

LOSSES: dict[str, Loss] = {"squared": Squared("mean"), "softmax": SoftmaxCrossEntropy()}

DEVIATIONS = (
    "Widths are not in the paper's text; powers of two are taken.",
    "The loss is not stated; networks are trained with the squared loss on one-hot labels, which is what kernel "
    "regression fits. With cross-entropy (--set loss=softmax) predictions do not come together in training as figure 7 "
    "says they do.",
    "Networks start from PyTorch's own initialization; the paper asks for the NTK parameterization of the last layer.",
    "As in related code of the authors, kernels are in float64, BatchNorm uses its running averages, the pNTK is that "
    "of sum(outputs) / sqrt(O), and in the paper preset the last BatchNorm scale of each block of ResNet18 starts at "
    "zero (zero_init_residual; at PyTorch's one in the smaller presets).",
)


@dataclass(frozen=True, kw_only=True)
class ArchitectureSpec(Spec):
    """Four architectures at several widths, trained on a part of a data set.

    Attributes:
        data: Data set.
        architectures: Some of ``"fcn"``, ``"convnet"``, ``"resnet18"`` and ``"wide_resnet16"``.
        fcn_widths: Exact widths of FCN.
        convnet_widths: Widening factors of ConvNet (16 channels each).
        resnet18_widths: Widening factors of ResNet18 (4 is the classical one).
        wide_resnet16_widths: Widening factors k of WideResNet-16-k.
        n_train: Training images, which are also those of the kernels; None for all.
        n_test: Test images.
        epochs: Number of training epochs.
        checkpoints: Epochs at which the kernels are taken; 0 is initialization.
        batch_size: Size of the minibatches.
        loss: ``"squared"``, the mean over outputs, or ``"softmax"`` cross-entropy.
        lr: Learning rate; where a run diverges or learns nothing, a tenth of it is taken.
        weight_decay: Weight decay of SGD.
        zero_init_residual: Whether the last BatchNorm scale of each block of ResNet18 starts at zero.
    """

    data: str = field(metadata=DATA)
    architectures: tuple[str, ...] = field(default=tuple(ARCHITECTURES), metadata=MODELS)
    fcn_widths: tuple[int, ...] = field(metadata=ROWS)
    convnet_widths: tuple[float, ...] = field(metadata=ROWS)
    resnet18_widths: tuple[float, ...] = field(metadata=ROWS)
    wide_resnet16_widths: tuple[float, ...] = field(metadata=ROWS)
    n_train: int | None = field(default=None, metadata=TRAIN_IMAGES)
    n_test: int | None = field(default=None, metadata=TEST_IMAGES)
    epochs: int = field(default=200, metadata=EPOCHS)
    checkpoints: tuple[int, ...] = field(default=(0, 50, 100, 150, 200), metadata=CHECKPOINTS)
    batch_size: int = field(default=128, metadata=BATCH_SIZE)
    loss: str = "squared"
    lr: float = 0.1
    weight_decay: float = 1e-4
    zero_init_residual: bool = field(default=False, metadata=only_with("resnet18"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.architectures:
            if name not in ARCHITECTURES:
                raise TangentError(
                    f"There is no architecture {name!r} here.", remedy=f"Choose from {', '.join(ARCHITECTURES)}."
                )
        if self.loss not in LOSSES:
            raise TangentError(f"There is no loss {self.loss!r} here.", remedy=f"Choose from {', '.join(LOSSES)}.")
        if 0 not in self.checkpoints:
            raise TangentError(
                "The checkpoints leave initialization out.",
                why="The claims compare with it.",
                remedy=f"Use --set checkpoints=0,{self.epochs}.",
            )
        if max(self.checkpoints) > self.epochs:
            raise TangentError(
                f"Epoch {max(self.checkpoints)} is after the last, {self.epochs}.",
                remedy=f"Use --set checkpoints=0,{self.epochs}, or more epochs.",
            )

    def images(self, seed: int) -> Images:
        """Return the data of a replicate: its seed also draws the images."""
        return Images(self.data, self.n_train, self.n_test, self.seed).draw(seed)

    @property
    def untrained(self) -> str:
        """The reason why claims about training are not decidable; empty if a checkpoint is after initialization."""
        return "" if max(self.checkpoints) else "No checkpoint is after initialization."

    def points(self) -> list[tuple[str, float]]:
        """Return architecture and width of every network."""
        return [(name, float(width)) for name in self.architectures for width in getattr(self, f"{name}_widths")]


def model(spec: ArchitectureSpec, name: str, width: float, seed: int, context: Context, init: str = "default") -> Model:
    """Return one network. ``width`` is as the paper counts it."""
    shape = spec.images(seed).shape(context)
    if name == "fcn":
        return Model("fcn", shape, 10, 1, init, seed=seed, options=(("hidden", int(width)),))
    if name == "resnet18":
        options = (("zero_init_residual", True),) if spec.zero_init_residual else ()
        return Model(name, shape, 10, width / 4, init, seed=seed, options=options)
    return Model(name, shape, 10, width, init, seed=seed)


Place = tuple[str, float, int]
"""Architecture, width and seed."""


def networks(spec: ArchitectureSpec, context: Context) -> dict[Place, Model]:
    """Return every network of an experiment."""
    return {
        (name, width, seed): model(spec, name, width, seed, context)
        for name, width in spec.points()
        for seed in spec.seed_list
    }


def train(spec: ArchitectureSpec, every: dict[Place, Model], context: Context) -> dict[Place, TrainingOutcome]:
    """Train every network; nothing is trained if the only checkpoint is initialization."""
    if spec.untrained:
        return {place: outcome({}, "finished", float("nan")) for place in every}
    return context.results({place: training(spec, network) for place, network in every.items()}, "training")


def training(spec: ArchitectureSpec, network: Model) -> Training:
    """Return the run of a network, which stores its weights at the checkpoints."""
    run = TrainingSpec(
        epochs=spec.epochs,
        batch_size=spec.batch_size,
        loss=LOSSES[spec.loss],
        optimizer=SGD(spec.lr, momentum=0.9, weight_decay=spec.weight_decay),
        seed=network.seed,
        evaluate_every=_spacing(spec.checkpoints, spec.epochs),
    )
    later = tuple(epoch for epoch in spec.checkpoints if epoch)
    problem = LabeledImages(spec.images(network.seed), Classes())
    return Training(network, problem, run, keep=later, fallback_lr=spec.lr / 10)


def at(spec: ArchitectureSpec, network: Model, epoch: int) -> Weights:
    """Return the weights of a network after some epochs."""
    return Weights(network, training(spec, network), epoch) if epoch else Weights(network)


def _spacing(checkpoints: tuple[int, ...], epochs: int) -> int:
    """Return the widest spacing of evaluations that includes every checkpoint."""
    from math import gcd

    return gcd(epochs, *checkpoints) or epochs
