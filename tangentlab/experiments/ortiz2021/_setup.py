"""The setup common to the paper's experiments: three networks of one logit, SGD with a linearly decaying rate."""

from dataclasses import dataclass, field

from tangentlab._errors import TangentError
from tangentlab.experiments._context import Context
from tangentlab.experiments._eigenpairs import Eigenpairs
from tangentlab.experiments._parts import Images, Model, Weights
from tangentlab.experiments._roles import BATCH_SIZE, DATA, EPOCHS, MODELS, TEST_IMAGES, TRAIN_IMAGES, only_with
from tangentlab.experiments._spec import Spec
from tangentlab.training import SGD, Adam, LinearDecay, SigmoidCrossEntropy, TrainingSpec

NAMES = {"mlp": "MLP", "lenet": "LeNet", "resnet18": "ResNet18"}
NETWORKS = tuple(NAMES)
THRESHOLD = 0.01

DEVIATIONS = (
    "Networks, initialization (LeCun-normal) and the dropped last minibatch follow the authors' code; the paper does "
    "not state them.",
    "Every configuration of the authors' code has seed 42, and subsets are class-stratified draws (random_state 4242) "
    "in the order of their data loader. Here every seed draws its own weights, minibatches and class-stratified "
    "subset; the authors' own weights and images cannot be had in PyTorch.",
)
RESNET = (
    "In the authors' code ResNet18 has ReLU where the kernel is computed and GELU where networks are trained, so the "
    "eigenfunctions belong to another network than the one that learns them. The paper preset does the same "
    "(resnet_activation); the smaller presets train with ReLU."
)
CIFAR2_EPOCHS = "CIFAR2 is trained for 200 epochs, as the paper says; the authors' configuration has 100."


@dataclass(frozen=True, kw_only=True)
class BinarySpec(Spec):
    """Networks of one logit on one data set.

    Attributes:
        data: Data set.
        models: Some of ``"mlp"``, ``"lenet"`` and ``"resnet18"``.
        resnet_width: Factor on ResNet18's channels.
        n_train: Training images; None for all.
        n_test: Test images; None for all.
        epochs: Number of training epochs.
        batch_size: Size of the minibatches.
        optimizer: ``"sgd"`` with momentum 0.9, or ``"adam"``.
        lr: Learning rate at the start.
        resnet_activation: Activation of ResNet18 where it is trained. The kernel whose eigenfunctions are the tasks is
            always that of ReLU.
    """

    data: str = field(metadata=DATA)
    models: tuple[str, ...] = field(default=NETWORKS, metadata=MODELS)
    resnet_width: float = field(default=1.0, metadata=only_with("resnet18"))
    n_train: int | None = field(default=None, metadata=TRAIN_IMAGES)
    n_test: int | None = field(default=None, metadata=TEST_IMAGES)
    epochs: int = field(default=100, metadata=EPOCHS)
    batch_size: int = field(default=128, metadata=BATCH_SIZE)
    optimizer: str = "sgd"
    lr: float = 0.05
    resnet_activation: str = field(default="relu", metadata=only_with("resnet18"))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.models:
            if name not in NETWORKS:
                raise TangentError(f"There is no model {name!r} here.", remedy=f"Choose from {', '.join(NETWORKS)}.")
        if self.optimizer not in ("sgd", "adam"):
            raise TangentError(f"There is no optimizer {self.optimizer!r} here.", remedy="Choose sgd or adam.")

    def images(self, seed: int) -> Images:
        """Return the data of a replicate: its seed also draws the images."""
        return Images(self.data, self.n_train, self.n_test, self.seed).draw(seed)


def model(
    spec: BinarySpec,
    name: str,
    seed: int,
    context: Context,
    shape: tuple[int, int, int] | None = None,
    trained: bool = False,
) -> Model:
    """Return one of the three networks, initialized as in the authors' code; ``trained`` is the one that is trained."""
    options: dict[str, tuple[tuple[str, object], ...]] = {
        "mlp": (),
        "lenet": (("variant", "ortiz2021"),),
        "resnet18": (("padding", "same"), ("zero_init_residual", True)),
    }
    width = spec.resnet_width if name == "resnet18" else 1.0
    shape = spec.images(seed).shape(context) if shape is None else shape
    activation = spec.resnet_activation if trained and name == "resnet18" else "relu"
    return Model(name, shape, 1, width, "lecun", activation, seed, options[name])


def training(spec: BinarySpec, seed: int, *, epochs: int | None = None, every: int | None = None) -> TrainingSpec:
    """Return the run: sigmoid cross-entropy, learning rate falling linearly to zero, last incomplete minibatch
    dropped."""
    epochs = spec.epochs if epochs is None else epochs
    return TrainingSpec(
        epochs=epochs,
        batch_size=spec.batch_size,
        loss=SigmoidCrossEntropy(),
        optimizer=SGD(spec.lr, momentum=0.9) if spec.optimizer == "sgd" else Adam(spec.lr),
        schedule=LinearDecay(),
        seed=seed,
        drop_last=True,
        thresholds=(THRESHOLD,),
        evaluate_every=epochs if every is None else every,
    )


def spectrum(spec: BinarySpec, name: str, seed: int, context: Context, k: int) -> Eigenpairs:
    """Return leading eigenpairs of the network's kernel at initialization over training and test images."""
    return Eigenpairs(Weights(model(spec, name, seed, context)), spec.images(seed), "both", k)
