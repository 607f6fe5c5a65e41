"""Options that belong together, each defined once: a network, samples, a kernel, work, training, an output."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from tangentlab._errors import TangentError

_SEED = (
    "Seed for the initial weights. The random generators of PyTorch, NumPy and Python are seeded before a factory is "
    "called, so that it draws the same weights every time. The default is 0."
)


def option(*names: str, value: str = "", **settings: Any) -> Any:
    """Return an option whose help shows ``value`` in place of a type."""
    return typer.Option(*names, metavar=value, **settings)


def store_path(text: str) -> Path | str:
    """Return a folder as a path, and an address as it is: a path would lose one of its slashes."""
    return text if "://" in text else Path(text)


@dataclass(frozen=True)
class NetworkOptions:
    """A network and its weights."""

    panel: ClassVar[str] = "Network"
    model: Annotated[
        str | None,
        option(value="NAME", help="Name of an architecture in tangentlab.models, or path/to/file.py:factory."),
    ] = None
    model_option: Annotated[
        list[str] | None,
        option(
            "--model-option", "-o", value="NAME=VALUE",
            help="Argument of the architecture or factory. Repeat the option for further arguments, each at most once.",
        ),
    ] = None  # fmt: skip
    checkpoint: Annotated[
        Path | None,
        option(
            value="FILE", help="File with the weights: a state dict (.pt), .safetensors, or a save_pretrained folder."
        ),
    ] = None
    seed: Annotated[int | None, option("--seed", value="N", help=_SEED)] = None


@dataclass(frozen=True)
class KernelSourceOptions(NetworkOptions):
    """A network, or a stored kernel in its place."""

    kernel: Annotated[
        Any,
        option(
            parser=store_path,
            value="STORE",
            help="Stored kernel to read instead of computing one from --model and --data.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse a model next to a stored kernel, which has its own.

        Raises:
            TangentError: Both were given.
        """
        if self.kernel is not None and self.model is not None:
            raise TangentError("Both --kernel and --model were given.", "A store knows its model.", "Pass one of them.")


@dataclass(frozen=True)
class TrainedNetworkOptions(NetworkOptions):
    """A network to train; ``--seed`` is the seed of its minibatches."""

    seed: Annotated[int | None, option("--init-seed", value="N", help=_SEED)] = None


@dataclass(frozen=True)
class DataOptions:
    """Samples, with labels and splits."""

    panel: ClassVar[str] = "Data"
    data: Annotated[
        str | None,
        option(value="NAME|FILE", help="Name of a data set in tangentlab.data, or a file of inputs (.npy, .npz, .pt)."),
    ] = None
    labels: Annotated[
        Path | None,
        option(value="FILE", help="Labels for a file of inputs: class indices (N,) or real targets (N, L)."),
    ] = None
    test_data: Annotated[
        Path | None, option(value="FILE", help="File of test inputs, in the form of the training inputs.")
    ] = None
    test_labels: Annotated[Path | None, option(value="FILE", help="Labels for the test inputs.")] = None
    data_dir: Annotated[Path | None, option(value="FOLDER", help="Folder that holds the named data sets.")] = None
    n_train: Annotated[
        int | None,
        option(
            value="N",
            help="Number of training samples: a stratified subset of a named data set, or the first N of a file.",
        ),
    ] = None
    n_test: Annotated[
        int | None,
        option(
            value="N",
            help="Number of test samples. Without --test-data, they are those after the training samples in the file.",
        ),
    ] = None
    data_seed: Annotated[
        int, option(value="N", help="Seed for drawing the stratified subsets of a named data set.")
    ] = 0


@dataclass(frozen=True)
class SplitOptions(DataOptions):
    """Samples of which a command takes one split, or both."""

    split: Annotated[
        str,
        option(value="SPLIT", help="Which samples to use: train, test, or all (training samples, then test samples)."),
    ] = "train"


@dataclass(frozen=True)
class KernelOptions:
    """The kernel to compute, and the device and memory to use."""

    panel: ClassVar[str] = "Kernel"
    readout: Annotated[
        str,
        option(
            value="READOUT",
            help="What is differentiated: pntk, full, trace, or the index of one output; with targets: loss, margin, "
            "label, next_token, or file.py:function, a function of one sample's outputs and its target.",
        ),
    ] = "pntk"
    targets: Annotated[
        Path | None,
        option(
            value="FILE",
            help="Targets of such a readout, one per sample (.npy, .pt); by default the labels of the data.",
        ),
    ] = None
    dtype: Annotated[
        str | None,
        option(value="DTYPE", help="Precision of the kernel: float16, float32 or float64; by default the model's."),
    ] = None
    device: Annotated[
        str | None, option(value="DEVICE", help="Device to compute on: cpu or cuda; by default the model's.")
    ] = None
    memory: Annotated[
        str | None,
        option(
            value="SIZE",
            help="Memory that all local processes may use together, such as 8GiB; by default 60 % of what is free.",
        ),
    ] = None  # fmt: skip


@dataclass(frozen=True)
class WorkOptions:
    """The processes that compute a stored kernel."""

    panel: ClassVar[str] = "Work"
    scratch: Annotated[
        Path | None,
        option(value="FOLDER", help="Folder for factors that do not fit into memory; by default inside the store."),
    ] = None
    scheduler: Annotated[
        str | None, option(value="ADDRESS", help="Address of a Dask scheduler, or local to start one on this machine.")
    ] = None
    workers: Annotated[int | None, option(value="N", min=1, help="Number of processes on this machine.")] = None
    shard: Annotated[
        str | None, option(value="I/N", help="Compute part I of N only, counted from 0, for instance 3/16.")
    ] = None


@dataclass(frozen=True)
class TrainingOptions:
    """A training run."""

    panel: ClassVar[str] = "Training"
    epochs: Annotated[int, option(value="N", min=1, help="Number of passes over the training samples.")] = 10
    batch_size: Annotated[int, option(value="N", min=1, help="Number of samples in a minibatch.")] = 128
    lr: Annotated[float, option("--lr", value="X", help="Learning rate at the start.")] = 0.05
    momentum: Annotated[float, option(value="X", help="Momentum of SGD; Adam ignores it.")] = 0.9
    weight_decay: Annotated[float, option(value="X", help="Weight decay of the optimizer.")] = 0.0
    optimizer: Annotated[str, option(value="NAME", help="Optimizer to train with: sgd or adam.")] = "sgd"
    schedule: Annotated[
        str, option(value="NAME", help="Schedule of the learning rate: constant, linear, steps or one-cycle.")
    ] = "linear"
    loss: Annotated[
        str | None,
        option(value="NAME", help="Loss to minimize: sigmoid, softmax or squared; by default the task's."),
    ] = None
    batch_seed: Annotated[int, option("--seed", value="N", help="Seed for the order of the minibatches.")] = 0


@dataclass(frozen=True)
class OutputOptions:
    """The form of the printed result."""

    panel: ClassVar[str] = "Output"
    as_json: Annotated[bool, option("--json", help="Print the result as JSON.")] = False
    quiet: Annotated[
        bool, option("--quiet", "-q", help="Print the result only: no progress bar, no estimate, no notes.")
    ] = False

    @property
    def progress(self) -> bool | None:
        """The library's ``progress`` argument: False, or None for a bar on a terminal."""
        return False if self.quiet else None


@dataclass(frozen=True)
class FolderOptions(OutputOptions):
    """The form of the printed result, and a folder for tables and pictures."""

    out: Annotated[Path | None, option(value="FOLDER", help="Folder to write tables, arrays and pictures to.")] = None


FULL, AUTO = KernelOptions(readout="full"), KernelOptions(readout="auto")
"""Where a command has all outputs by default, or as long as they fit."""
DIGITS, DIGITS_SPLIT = DataOptions(data="digits"), SplitOptions(data="digits")
"""Where a command has data by default."""
StorePath = Path | str
"""A folder, or the address of an object store."""
StoreArgument = Annotated[
    Any,
    typer.Argument(
        parser=store_path,
        metavar="STORE",
        help="Folder, packed file or address (s3://bucket/name.zarr) of a stored kernel.",
    ),
]
StoreOut = Annotated[
    Any,
    option(
        parser=store_path,
        value="STORE",
        help="Folder of the store, by convention named *.zarr, or its address: s3://bucket/name.zarr, gs://, az://.",
    ),
]
Task = Annotated[
    str, option(value="TASK", help="Targets to learn: classes, cifar2, one-hot, random, or one-vs-rest:CLASS.")
]
Shape = Annotated[str, option(value="C,H,W", help="Shape of one input, separated by commas.")]
Memory = Annotated[
    str | None,
    option(value="SIZE", help="Memory to use, for instance 8GiB; by default 60 % of what is free."),
]
Device = Annotated[
    str | None, option(value="DEVICE", help="Device to compute on: cpu or cuda; by default the model's.")
]
