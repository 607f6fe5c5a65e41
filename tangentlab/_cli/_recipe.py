"""Model and data by what a user writes on the command line, for every command that takes them."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tangentlab import data, models
from tangentlab._cli._files import SUFFIXES, load_factory, load_samples, load_weights, read_logits
from tangentlab._errors import TangentError
from tangentlab.data import ImageData

SPLITS = ("train", "test", "all")


@dataclass(frozen=True)
class Recipe:
    """How to make a model and its samples again: plain values, kept in the manifest of a store.

    Attributes:
        model: A name of :mod:`tangentlab.models`, or "path/to/file.py:factory".
        model_options: Arguments of the architecture or the factory.
        checkpoint: Weights: a state dict (.pt), a .safetensors file, or a folder that ``save_pretrained`` wrote.
        data: A name of :mod:`tangentlab.data`, or a file of inputs (.npy, .npz, .pt), the first axis counting samples.
        data_dir: The folder of the data sets.
        split: "train", "test", or "all" (training samples, then test samples).
        n_train: A stratified subset of so many training samples.
        n_test: The same for the test split.
        data_seed: Draws the subsets.
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

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"model_options": dict(self.model_options)}

    @classmethod
    def from_json(cls, content: Any) -> "Recipe":
        """The recipe from plain values.

        Raises:
            TangentError: They are none.
        """
        names = {field.name for field in fields(cls)}
        if not isinstance(content, Mapping) or not {"model", "model_options"} <= set(content) <= names:
            raise TangentError(
                "the store does not say how its model and data were made.",
                "it was not made on the command line.",
                "pass --model and --data (and their options) as they were, or go on in Python with store.compute.",
            )
        return cls(**content)

    def load(self) -> tuple[nn.Module, Any]:
        """The model in evaluation mode, and the samples."""
        x = self.load_samples()
        return self.load_model(x), x

    def load_samples(self) -> Any:
        """The samples: a data set, a tensor, or a dict of tensors by the names of the model's arguments."""
        if self.split not in SPLITS:
            raise TangentError(f"there is no split {self.split!r}.", "", f"choose one of {', '.join(SPLITS)}.")
        if Path(self.data).suffix in SUFFIXES:
            if self.split == "test" or self.n_train is not None or self.n_test is not None:
                raise TangentError(
                    f"{self.data} has no splits.",
                    "--split test, --n-train and --n-test choose from a named data set.",
                    "leave them out, and write the samples that you want into the file.",
                )
            return load_samples(Path(self.data))
        images = self.load_images()
        return images.both() if self.split == "all" else getattr(images, self.split)

    def load_images(self) -> ImageData:
        """Both splits of a named data set."""
        return data.load(self.data, self.data_dir, n_train=self.n_train, n_test=self.n_test, seed=self.data_seed)

    def load_model(self, x: Any = None) -> nn.Module:
        """The model with its weights, in evaluation mode; ``x`` gives the input shape where nobody says it."""
        if ":" in self.model or self.model.endswith(".py"):
            model = load_factory(self.model, self.model_options)
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


def make_recipe(
    model: str | None,
    model_option: Sequence[str] | None,
    checkpoint: Path | None,
    data: str | None,
    data_dir: Path | None,
    split: str,
    n_train: int | None,
    n_test: int | None,
    data_seed: int,
) -> Recipe:
    """The recipe from the options of a command; paths become absolute, so that it holds from any folder.

    Raises:
        TangentError: Model or data are missing.
    """
    for name, value in (("--model", model), ("--data", data)):
        if value is None:
            raise TangentError(f"{name} is missing.", "", "see --help of the command.")
    assert model is not None
    assert data is not None
    file, colon, factory = model.rpartition(":")
    model = f"{Path(file).absolute()}:{factory}" if colon else model
    chosen = parse_options(model_option or ())
    if not colon:
        chosen.setdefault("seed", 0)  # the same command must mean the same weights
    return Recipe(
        model,
        chosen,
        None if checkpoint is None else str(checkpoint.absolute()),
        str(Path(data).absolute()) if Path(data).suffix in SUFFIXES else data,
        None if data_dir is None else str(data_dir.absolute()),
        split,
        n_train,
        n_test,
        data_seed,
    )


def parse_options(pairs: Sequence[str]) -> dict[str, Any]:
    """Options from texts such as "width=2": Python values where they are such, else text."""
    options: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip().isidentifier():
            raise TangentError(f"the option is {pair!r}.", "", "write name=value, for instance width=2.")
        try:
            options[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError):
            options[name.strip()] = value.strip()
    return options
