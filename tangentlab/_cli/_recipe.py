"""Model and data from options of the command line, for every command that takes them."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import data, models
from tangentlab._cli._files import SUFFIXES, load_factory, load_weights, read_logits
from tangentlab._cli._options import DataOptions, NetworkOptions, SplitOptions
from tangentlab._cli._samples import (
    FileData,
    chosen,
    count,
    index,
    join,
    load_inputs,
    load_labels,
    load_splits,
    refuse_other_kind,
)
from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean
from tangentlab.data import ImageData

SPLITS = ("train", "test", "all")


@dataclass(frozen=True)
class Recipe:
    """A description of a model and its samples in plain values, stored in the manifest of a store.

    Attributes:
        model: A name of :mod:`tangentlab.models`, or "path/to/file.py:factory".
        model_options: Arguments of the architecture or the factory.
        checkpoint: Weights: a state dict (.pt), a .safetensors file, or a folder that ``save_pretrained`` wrote.
        data: A name of :mod:`tangentlab.data`, or a file of inputs (.npy, .npz, .pt), the first axis counting samples.
        data_dir: The folder of the data sets.
        split: "train", "test", or "all" (training samples, then test samples).
        n_train: Number of training samples: a stratified subset of a data set, the first ones of a file.
        n_test: The same for the test split.
        data_seed: Seed of the subsets.
        seed: Seed of the random generators before a factory draws its weights.
        labels: A file of labels for a file of inputs.
        test_data: A file of test inputs for a file of inputs.
        test_labels: A file of labels for the test inputs.
    """

    model: str
    model_options: Mapping[str, Any]
    checkpoint: str | None = None
    data: str = "digits"
    data_dir: str | None = None
    split: str = "train"
    n_train: int | None = None
    n_test: int | None = None
    data_seed: int = 0
    seed: int = 0
    labels: str | None = None
    test_data: str | None = None
    test_labels: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self) | {"model_options": dict(self.model_options)}

    @classmethod
    def from_json(cls, content: Any) -> "Recipe":
        """Make the recipe from plain values.

        Raises:
            TangentError: They are not the values of a recipe.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(content, Mapping) or not {"model", "model_options"} <= set(content) <= names:
            raise TangentError(
                "The store does not say how its model and data were made.",
                "It was not made on the command line.",
                "Pass --model and --data (and their options) as they were, or continue in Python with store.compute.",
            )
        return cls(**content)

    @property
    def from_file(self) -> bool:
        """Whether the samples are the user's own."""
        return Path(self.data).suffix in SUFFIXES

    @property
    def from_factory(self) -> bool:
        """Whether the user's own code makes the model."""
        return ":" in self.model or self.model.endswith(".py")

    @property
    def start(self) -> str:
        """The origin of the weights, in words."""
        if self.checkpoint is not None:
            return self.checkpoint
        seed = self.seed if self.from_factory else self.model_options.get("seed")
        return f"the initial weights that {Path(self.model).name} draws with seed {seed}"

    def load(self) -> tuple[nn.Module, Any]:
        """Load the model in evaluation mode, and the samples."""
        x = self.load_samples()
        return self.load_model(x), x

    def load_samples(self) -> Any:
        """Load the samples: a data set, a tensor, or a dict of tensors by the names of the model's arguments."""
        if self.split not in SPLITS:
            raise TangentError(
                f"There is no split {self.split!r}.",
                "",
                f"{did_you_mean(self.split, SPLITS)}Choose one of {', '.join(SPLITS)}.",
            )
        if self.from_file:
            return self._load_file()
        images = self.load_images()
        return images.both() if self.split == "all" else getattr(images, self.split)

    def _load_file(self) -> Any:
        if self.test_data is None and (self.n_train is not None or self.n_test is not None or self.split == "test"):
            raise TangentError(
                f"{self.data} has no splits.",
                "--split test, --n-train and --n-test choose from a named data set, or from training and test samples "
                "in two files.",
                "Leave them out, or pass the test samples in --test-data FILE.",
            )
        train = load_inputs(self.data, self.labels)
        if self.test_data is None:
            return train
        test = load_inputs(self.test_data, self.test_labels)
        refuse_other_kind(self.data, train, self.test_data, test)
        train = index(train, slice(0, chosen("--n-train", self.n_train, count(train), self.data)))
        test = index(test, slice(0, chosen("--n-test", self.n_test, count(test), self.test_data)))
        return join(train, test) if self.split == "all" else {"train": train, "test": test}[self.split]

    def load_targets(self) -> Any:
        """Load the labels of the samples of a file, in the order of the samples; None where it has none.

        The samples of a named data set come with theirs.
        """
        if not self.from_file:
            return None
        files = {"train": [self.labels], "test": [self.test_labels], "all": [self.labels, self.test_labels]}[self.split]
        files = files[:1] if self.test_data is None else files
        if any(file is None for file in files):
            return None
        limits = [self.n_test if self.split == "test" else self.n_train, self.n_test]
        parts = [load_labels(Path(file))[: limits[i]] for i, file in enumerate(files) if file is not None]
        return torch.cat(parts)

    def load_images(self) -> ImageData:
        """Load both splits of a named data set.

        Raises:
            TangentError: There is no such data set, or files of labels were given with it.
        """
        for option, value in (
            ("--labels", self.labels), ("--test-data", self.test_data), ("--test-labels", self.test_labels)
        ):  # fmt: skip
            if value is not None:
                raise TangentError(
                    f"{option} was given without --kernel and with the data set {self.data!r}.",
                    "A named data set has its own labels and test samples.",
                    f"Leave {option} out, or pass a file of inputs (.npy, .npz, .pt) to --data.",
                )
        return data.load(self.data, self.data_dir, n_train=self.n_train, n_test=self.n_test, seed=self.data_seed)

    def load_labeled(self) -> Any:
        """Load both splits with labels: a :class:`tangentlab.data.ImageData`, or a :class:`FileData` of the same
        form."""
        if not self.from_file:
            return self.load_images()
        found: FileData = load_splits(
            self.data, self.labels, self.test_data, self.test_labels, self.n_train, self.n_test
        )
        return found

    def load_model(self, x: Any = None) -> nn.Module:
        """Load the model with its weights, in evaluation mode; ``x`` determines the input shape if no option does."""
        if self.from_factory:
            model = load_factory(self.model, self.model_options, self.seed)
        else:
            options = dict(self.model_options)
            if "input_shape" not in options and isinstance(x, data.Examples):
                options["input_shape"] = x.input_shape
            elif "input_shape" not in options and isinstance(x, Tensor) and x.ndim == 4:
                options["input_shape"] = tuple(x.shape[1:])
            model = models.build(self.model, **options)
        if self.checkpoint is not None:
            load_weights(model, Path(self.checkpoint))
        return read_logits(model).eval()


def make_recipe(network: NetworkOptions, samples: DataOptions | None = None) -> Recipe:
    """Make the recipe from the options of a command, with absolute paths, so that it is valid in any folder.

    Args:
        network: The network.
        samples: The samples; None for a command that takes none.

    Raises:
        TangentError: Model or data are missing, or the seed is given twice.
    """
    samples = DataOptions(data="digits") if samples is None else samples
    for name, value in (("--model", network.model), ("--data", samples.data)):
        if value is None:
            raise TangentError(f"{name} is missing.", "", "See --help of the command.")
    assert network.model is not None
    assert samples.data is not None
    file, colon, factory = network.model.rpartition(":")
    given = parse_options(network.model_option or ())
    if not colon:
        if network.seed is not None and "seed" in given:
            raise TangentError(
                "The seed was given twice.", "-o seed=N and --seed N mean the same here.", "Pass one of them."
            )
        given.setdefault("seed", network.seed or 0)  # the same command must mean the same weights
    return Recipe(
        f"{Path(file).absolute()}:{factory}" if colon else network.model,
        given,
        _absolute(network.checkpoint),
        _absolute(Path(samples.data)) or "" if Path(samples.data).suffix in SUFFIXES else samples.data,
        _absolute(samples.data_dir),
        samples.split if isinstance(samples, SplitOptions) else "train",
        samples.n_train,
        samples.n_test,
        samples.data_seed,
        network.seed or 0,
        _absolute(samples.labels),
        _absolute(samples.test_data),
        _absolute(samples.test_labels),
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Parse texts such as "width=2": Python values if they are such, else text.

    Raises:
        TangentError: One is no assignment, or a name is given twice.
    """
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name.isidentifier():
            raise TangentError(f"The option is {pair!r}.", "", "Write name=value, for instance width=2.")
        if name in options:
            raise TangentError(
                f"{name} was given twice.", f"It is {options[name]!r} and {value}.", f"Pass one -o {name}=VALUE."
            )
        try:
            options[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[name] = value
    return options
