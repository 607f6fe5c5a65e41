"""The setup common to the paper's experiments: networks by width, squared loss, SGD with weight decay."""

from dataclasses import dataclass, field

from tangentlab.experiments._context import Context
from tangentlab.experiments._parts import Classes, Images, LabeledImages, Model, OneVsRest
from tangentlab.experiments._roles import BATCH_SIZE, DATA, EPOCHS, ROWS, TEST_IMAGES, TRAIN_IMAGES
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._training import Form, Training
from tangentlab.training import SGD, Constant, Squared, Steps, TrainingSpec

DEVIATIONS = (
    "The loss of a sample is the mean over its outputs, as torch.nn.MSELoss; the paper writes |f - y|^2 and does not "
    "say how its code normalizes it.",
    "Shifted digits are on a canvas that holds all ink (35 x 35 for MNIST); the paper does not say what happens at the "
    "border.",
)


@dataclass(frozen=True, kw_only=True)
class WidthSpec(Spec):
    """Networks of several widths on one data set.

    Attributes:
        data: Data set.
        architecture: ``"lenet"`` or ``"alexnet"``.
        widths: Factors on every channel count and hidden width.
        n_train: Training images; None for all.
        n_test: Test images; None for all.
        pad_to: Side of the square that images are padded to; None for none.
        shift: Largest shift in pixels.
        canvas: Side of the canvas of shifted images.
        epochs: Number of training epochs.
        batch_size: Size of the minibatches.
        lr: Learning rate of the network.
        weight_decay: Weight decay of the network.
        linear_lr: Learning rates of the linearization; one run per rate.
        linear_weight_decay: Weight decay of the linearization, one per learning rate.
        decay_every: Epochs after which the learning rate is divided by ten; 0 for never.
        watched: Training samples whose outputs are recorded (figure A2).
        watch_every: Updates between those records.
    """

    data: str = field(metadata=DATA)
    architecture: str = "lenet"
    widths: tuple[float, ...] = field(metadata=ROWS)
    n_train: int | None = field(default=None, metadata=TRAIN_IMAGES)
    n_test: int | None = field(default=None, metadata=TEST_IMAGES)
    pad_to: int | None = None
    shift: int = 0
    canvas: int | None = None
    epochs: int = field(default=100, metadata=EPOCHS)
    batch_size: int = field(default=32, metadata=BATCH_SIZE)
    lr: float = 0.1
    weight_decay: float = 5e-5
    linear_lr: tuple[float, ...] = (0.1,)
    linear_weight_decay: tuple[float, ...] = (5e-5,)
    decay_every: int = 0
    watched: int = field(default=16, metadata=ROWS)
    watch_every: int = field(default=1000, metadata=ROWS)

    def images(self, seed: int) -> Images:
        """Return the data of a replicate: its seed also draws the images."""
        return Images(self.data, self.n_train, self.n_test, self.seed, self.pad_to, self.shift, self.canvas).draw(seed)


def model(spec: WidthSpec, width: float, seed: int, context: Context, outputs: int = 10) -> Model:
    """Return the network of one width, with PyTorch's initialization."""
    return Model(spec.architecture, spec.images(seed).shape(context), outputs, width, seed=seed)


def runs(
    spec: WidthSpec, width: float, seed: int, context: Context, binary: bool = False
) -> dict[tuple[Form, float], Training]:
    """Return the runs of the network and its linearization, by form and learning rate, with equal weights and
    minibatches."""
    network = model(spec, width, seed, context, outputs=1 if binary else 10)
    targets = OneVsRest(0, (0.0, 1.0)) if binary else Classes()
    problem = LabeledImages(spec.images(seed), targets)
    settings: list[tuple[Form, float, float]] = [("network", spec.lr, spec.weight_decay)]
    decays = spec.linear_weight_decay
    settings += [("linearized", lr, decays[min(i, len(decays) - 1)]) for i, lr in enumerate(spec.linear_lr)]
    result: dict[tuple[Form, float], Training] = {}
    for form, lr, decay in settings:
        run = TrainingSpec(
            epochs=spec.epochs,
            batch_size=spec.batch_size,
            loss=Squared("mean", threshold=0.5 if binary else 0.0),
            optimizer=SGD(lr, momentum=0.9, weight_decay=decay, decay_to="zero" if form == "network" else "start"),
            schedule=Steps(spec.decay_every) if spec.decay_every else Constant(),
            seed=seed,
            evaluate_every=spec.epochs,
            watch_every=None if binary else spec.watch_every,
        )
        result[form, lr] = Training(network, problem, run, form, watch=0 if binary else spec.watched)
    return result
