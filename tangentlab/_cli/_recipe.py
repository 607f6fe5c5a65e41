"""Model and data by what a user writes on the command line, for every command that takes them."""

import ast
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab import data, models
from tangentlab._errors import TangentError
from tangentlab.data import ImageData

SPLITS = ("train", "test", "all")
_ARRAYS = (".npy", ".pt", ".pth")
_NESTED = ("state_dict", "model", "model_state_dict")


@dataclass(frozen=True)
class Recipe:
    """How to make a model and its samples again: plain values, kept in the manifest of a store.

    Attributes:
        model: A name of :mod:`tangentlab.models`, or "path/to/file.py:factory".
        model_options: Arguments of the architecture or the factory.
        checkpoint: Weights: a state dict (.pt) or a .safetensors file.
        data: A name of :mod:`tangentlab.data`, or a file of inputs (.npy, .pt), the first axis counting samples.
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
        """The samples: a data set or a tensor."""
        if self.split not in SPLITS:
            raise TangentError(f"there is no split {self.split!r}.", "", f"choose one of {', '.join(SPLITS)}.")
        if Path(self.data).suffix in _ARRAYS:
            return _load_array(Path(self.data))
        images = self.load_images()
        return images.both() if self.split == "all" else getattr(images, self.split)

    def load_images(self) -> ImageData:
        """Both splits of a named data set."""
        return data.load(self.data, self.data_dir, n_train=self.n_train, n_test=self.n_test, seed=self.data_seed)

    def load_model(self, x: Any = None) -> nn.Module:
        """The model with its weights, in evaluation mode; ``x`` gives the input shape where nobody says it."""
        if ":" in self.model or self.model.endswith(".py"):
            model = _load_factory(self.model, self.model_options)
        else:
            options = dict(self.model_options)
            if "input_shape" not in options and isinstance(x, data.Examples):
                options["input_shape"] = x.input_shape
            elif "input_shape" not in options and isinstance(x, Tensor) and x.ndim == 4:
                options["input_shape"] = tuple(x.shape[1:])
            model = models.build(self.model, **options)
        if self.checkpoint is not None:
            load_weights(model, Path(self.checkpoint))
        return model.eval()


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
        str(Path(data).absolute()) if Path(data).suffix in _ARRAYS else data,
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


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the weights of a file into a model.

    Args:
        model: The model.
        path: A state dict that ``torch.save`` wrote, alone or under "state_dict" or "model", or a .safetensors file.

    Raises:
        TangentError: The file is missing, damaged, or of another model.
    """
    _refuse_missing(path, "checkpoint")
    try:
        if path.suffix == ".safetensors":
            state = importlib.import_module("safetensors.torch").load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except ImportError as error:
        raise TangentError("safetensors is not installed.", "", "pip install safetensors.") from error
    except Exception as error:  # a damaged file can fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TangentError(
            f"{path} cannot be read: {reason}",
            "only files of plain tensors are loaded (weights_only=True), never code.",
            "save the weights with torch.save(model.state_dict(), path), or as .safetensors.",
        ) from error
    for key in _NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise TangentError(
            f"{path} holds no state dict.",
            "weights are tensors by name.",
            "save it with torch.save(model.state_dict(), path).",
        )
    try:
        model.load_state_dict(dict(state))
    except RuntimeError as error:
        lines = [line.strip() for line in str(error).splitlines()[1:4]]
        raise TangentError(
            f"{path} does not fit the model: {' '.join(lines)}",
            "names and shapes must agree.",
            "pass the model's options (--model-option) as they were when it was trained.",
        ) from error


def _load_array(path: Path) -> Tensor:
    _refuse_missing(path, "file of samples")
    try:
        if path.suffix == ".npy":
            return torch.from_numpy(np.load(path, allow_pickle=False))
        value = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in any way
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TangentError(f"{path} cannot be read: {reason}", "", "pass an array (.npy) or a tensor (.pt).") from error
    if not isinstance(value, Tensor):
        raise TangentError(f"{path} holds {type(value).__name__}.", "", "pass one tensor, samples first.")
    return value


def _load_factory(spec: str, options: Mapping[str, Any]) -> nn.Module:
    """Call the factory of "path/to/file.py:factory"."""
    file, colon, name = spec.rpartition(":")
    path = Path(file if colon else spec)
    if not colon or path.suffix != ".py" or not name.isidentifier():
        raise TangentError(
            f"the model is {spec!r}.", "", "write a name of tangentlab.models, or path/to/file.py:factory."
        )
    _refuse_missing(path, "model file")
    module_name = path.stem
    if module_name in sys.modules or importlib.util.find_spec(module_name) is not None:
        module_name = f"tangentlab_model_{path.stem}"  # the plain name belongs to somebody else
    else:
        sys.path.insert(0, str(path.absolute().parent))  # so that other processes find the model's class too
    found = importlib.util.spec_from_file_location(module_name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module
    try:
        found.loader.exec_module(module)
        model = getattr(module, name)(**options)
    except TangentError:
        raise
    except AttributeError as error:
        if hasattr(module, name):
            raise _failed(spec, error) from error
        raise TangentError(
            f"{path} has no {name}.", "", f"define {name}, a function that returns the model."
        ) from error
    except Exception as error:  # user's code can fail in any way
        raise _failed(spec, error) from error
    if not isinstance(model, nn.Module):
        raise TangentError(f"{spec} gives {type(model).__name__}.", "", "return a torch.nn.Module.")
    return model


def _failed(spec: str, error: Exception) -> TangentError:
    reason = str(error).splitlines()[0] if str(error) else ""
    return TangentError(
        f"{spec} fails: {type(error).__name__}: {reason}", "", "call it yourself to see the whole error."
    )


def _refuse_missing(path: Path, what: str) -> None:
    if not path.is_file():
        raise TangentError(f"there is no {what} {path}.", "", "check the path.")
