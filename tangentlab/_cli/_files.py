"""A user's own files: models, weights and samples."""

import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable, first_line
from tangentlab._tensor_files import load_numpy, load_safetensors, load_torch

SUFFIXES = (".npy", ".npz", ".pt", ".pth")
"""Of files of samples."""
_NESTED = ("state_dict", "model", "model_state_dict")
_PREFIXES = ("module.", "_orig_mod.", "model.", "net.")
"""What DistributedDataParallel, torch.compile and trainers put before the names."""
_SHOWN = 3
"""Names that a message lists."""


class Logits(nn.Module):
    """A ``transformers`` model that returns its logits, a tensor, instead of a record."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the logits, or the model's result if it has none."""
        result = self.model(*args, **kwargs)
        return result if isinstance(result, Tensor) else getattr(result, "logits", result)


class ByName(nn.Module):
    """A model of several arguments as a module of one: a dict of tensors by the arguments' names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Mapping[str, Tensor]) -> Any:
        """Call the model with its arguments on its device, floating-point ones in its precision."""
        like = next(self.model.parameters())
        moved = {
            name: part.to(like.device, like.dtype if part.is_floating_point() else None) for name, part in batch.items()
        }
        return self.model(**moved)


def read_logits(model: nn.Module) -> nn.Module:
    """Return the model; a ``transformers`` model is wrapped to return its logits."""
    library = sys.modules.get("transformers")
    return Logits(model) if library is not None and isinstance(model, library.PreTrainedModel) else model


def load_weights(model: nn.Module, path: Path) -> None:
    """Load the weights of a file into a model.

    A prefix that DistributedDataParallel, torch.compile or a trainer put before all names is removed. Tied weights
    need to be in the file once.

    Args:
        model: The model.
        path: A state dict that ``torch.save`` wrote, alone or under "state_dict" or "model"; a .safetensors file; or a
            folder with model.safetensors, as ``save_pretrained`` writes it.

    Raises:
        TangentError: The file is missing, damaged, or of another model.
    """
    if path.is_dir() and (path / "model.safetensors").is_file():
        path = path / "model.safetensors"
    _refuse_missing(path, "checkpoint")
    state: Any = _read(path, "Save the weights with torch.save(model.state_dict(), path), or as .safetensors.")
    for key in _NESTED:
        if isinstance(state, Mapping) and isinstance(state.get(key), Mapping):
            state = state[key]
    if not _named_tensors(state):
        raise TangentError(
            f"{path} holds no state dict.",
            "Weights are tensors by name.",
            "Save it with torch.save(model.state_dict(), path).",
        )
    expected = model.state_dict(keep_vars=True)
    state = _without_prefix(dict(state), set(expected))
    kept = {id(expected[name]) for name in state if name in expected}
    problems = {
        "missing": [name for name in expected if name not in state and id(expected[name]) not in kept],
        "not of the model": [name for name in state if name not in expected],
        "of another shape": [
            f"{name} {tuple(value.shape)} for {tuple(expected[name].shape)}"
            for name, value in state.items()
            if name in expected and value.shape != expected[name].shape
        ],
    }
    if any(problems.values()):
        said = "; ".join(f"{what}: {_few(names)}" for what, names in problems.items() if names)
        raise TangentError(
            f"{path} does not fit the model. {said}.",
            "Names and shapes must agree.",
            "Build the model (--model, -o name=value) as it was when the weights were saved.",
        )
    for name, value in state.items():
        _refuse_nan(path, name, value)
    model.load_state_dict(state, strict=False)


def load_samples(path: Path) -> Any:
    """Load the model's inputs: one tensor, or a dict of tensors by the names of its arguments.

    Raises:
        TangentError: The file is missing, damaged, or contains something else.
    """
    _refuse_missing(path, "file of samples")
    remedy = "Pass an array (.npy), named arrays (.npz), a tensor or a dict of tensors (.pt), samples first."
    value = _read(path, remedy)
    if _named_tensors(value) and len(value):
        for name, part in value.items():
            _refuse_nan(path, str(name), part)
        return dict(value)
    if not isinstance(value, Tensor):
        raise TangentError(f"{path} holds {type(value).__name__}.", "It must contain only the inputs.", remedy)
    _refuse_nan(path, "its numbers", value)
    return value


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python inside the context, and restore them afterwards."""
    others = random.getstate(), np.random.get_state()  # noqa: NPY002 - a factory may use it
    with torch.random.fork_rng(range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            random.setstate(others[0])
            np.random.set_state(others[1])  # noqa: NPY002


def load_factory(spec: str, options: Mapping[str, Any], seed: int = 0) -> nn.Module:
    """Load the model of "path/to/file.py:factory": what the factory returns, or the module of that name.

    Args:
        spec: The file and the name in it.
        options: Arguments of the factory.
        seed: Seed of the global generators before the file is run, and again before the factory is called.

    Raises:
        TangentError: The file is missing or fails, or returns no module.
    """
    path, name = _parts(spec, "model", "Write a name of tangentlab.models, or path/to/file.py:factory.")
    with _explained(spec, f"Call {name}() yourself to see the whole error; -o name=value passes arguments."):
        with seeded(seed):
            module = _run(path)
        if not hasattr(module, name):
            raise TangentError(f"{path} has no {name}.", "", f"Define {name}, a function that returns the model.")
        factory = getattr(module, name)
        with seeded(seed):
            model = factory if isinstance(factory, nn.Module) and not options else factory(**options)
    if not isinstance(model, nn.Module):
        raise TangentError(f"{spec} gives {type(model).__name__}.", "", "Return a torch.nn.Module.")
    return model


def load_function(spec: str) -> Callable[..., Any]:
    """Load the function of "path/to/file.py:function"; a file that has been run, as for a model, is not run again.

    Raises:
        TangentError: The file is missing or fails, or has no such function.
    """
    path, name = _parts(spec, "readout", "Write the name of a readout, or path/to/file.py:function.")
    with _explained(spec, f"Run python {path} to see the whole error."):
        file = str(path.absolute())
        module = next((m for m in [*sys.modules.values()] if getattr(m, "__file__", None) == file), None)
        found = getattr(module or _run(path), name, None)
    if not callable(found):
        raise TangentError(
            f"{path} has no function {name}.", "", f"Define {name}, a function of one sample's outputs and its target."
        )
    return found


def _parts(spec: str, what: str, remedy: str) -> tuple[Path, str]:
    """Return the file and the name of "path/to/file.py:name"."""
    file, colon, name = spec.rpartition(":")
    path = Path(file if colon else spec)
    if not colon or path.suffix != ".py" or not name.isidentifier():
        raise TangentError(f"The {what} is {spec!r}.", "", remedy)
    _refuse_missing(path, f"{what} file")
    return path, name


def _run(path: Path) -> ModuleType:
    """Run a user's file and return its module."""
    module_name = path.stem
    if module_name in sys.modules or importlib.util.find_spec(module_name) is not None:
        module_name = f"tangentlab_model_{path.stem}"  # another module has the plain name
    else:
        sys.path.insert(0, str(path.absolute().parent))  # so that other processes find the model's class too
    found = importlib.util.spec_from_file_location(module_name, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[module_name] = module
    found.loader.exec_module(module)
    return module


@contextmanager
def _explained(spec: str, remedy: str) -> Iterator[None]:
    """Turn whatever a user's code raises into a refusal."""
    try:
        yield
    except TangentError:
        raise
    except Exception as error:  # user's code can fail in any way
        reason = first_line(error)
        if isinstance(error, SyntaxError):
            reason = f"{error.msg} in line {error.lineno}: {(error.text or '').strip()}"
        raise TangentError(
            f"{spec} fails: {type(error).__name__}: {reason}",
            "",
            f"Run python {spec.rpartition(':')[0]} to see the whole error."
            if isinstance(error, SyntaxError | ImportError)
            else remedy,
        ) from error


def _read(path: Path, remedy: str) -> Any:
    """Read the arrays and tensors of a file, never code."""
    try:
        if path.suffix == ".safetensors":
            return load_safetensors(path)
        return load_numpy(path) if path.suffix in (".npy", ".npz") else load_torch(path)
    except Unreadable as error:
        raise TangentError(
            f"{path} {error}.", "Only files of plain tensors are loaded (weights_only=True), never code.", remedy
        ) from error


def _named_tensors(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str) and isinstance(part, Tensor) for name, part in value.items()
    )


def _refuse_nan(path: Path, name: str, value: Tensor) -> None:
    """Refuse a tensor that is not dense or contains NaN."""
    if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
        raise TangentError(
            f"{path} has a tensor without plain numbers, {name}.",
            f"It is {'quantized' if value.is_quantized else f'{value.layout} on {value.device.type!r}'}.",
            "Save it dense: tensor.to_dense(), tensor.dequantize().",
        )
    if value.is_floating_point() and bool(torch.isnan(value).any()):
        raise TangentError(
            f"{path} has NaN in {name}.",
            "The whole kernel would be NaN.",
            "Find its origin, and remove it.",
        )


def _without_prefix(state: dict[str, Tensor], expected: set[str]) -> dict[str, Tensor]:
    for prefix in _PREFIXES:
        short = {name.removeprefix(prefix): value for name, value in state.items()}
        if all(name.startswith(prefix) for name in state) and set(short) <= expected and not set(state) <= expected:
            return short
    return state


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _refuse_missing(path: Path, what: str) -> None:
    if not path.is_file():
        raise TangentError(f"There is no {what} {path}.", "", "Check the path.")
