"""Kernels from options of the command line: in memory, and in stores that the command line made."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import engines, store
from tangentlab._cli._options import KernelOptions, OutputOptions, StorePath, WorkOptions
from tangentlab._cli._output import note
from tangentlab._cli._readouts import parse_readout
from tangentlab._cli._recipe import Recipe
from tangentlab._errors import TangentError
from tangentlab._memory import parse_bytes
from tangentlab._reading import first_line
from tangentlab._suggestions import did_you_mean
from tangentlab.kernels import ntk
from tangentlab.store.internal import DTYPES, named_weights, restore_weights, same_weights, stored_weights


def parse_dtype(name: str | None) -> torch.dtype | None:
    """Parse a precision.

    Raises:
        TangentError: There is none of that name.
    """
    if name is not None and name not in DTYPES:
        raise TangentError(
            f"There is no dtype {name!r}.", "", f"{did_you_mean(name, DTYPES)}Choose one of {', '.join(DTYPES)}."
        )
    return None if name is None else DTYPES[name]


def parse_device(name: str | None) -> torch.device | None:
    """Parse a device.

    Raises:
        TangentError: This machine has none of that name.
    """
    try:
        return None if name is None else torch.empty(0, device=name).device
    except (RuntimeError, AssertionError) as error:  # PyTorch without CUDA asserts
        raise TangentError(
            f"--device is {name!r}.", "PyTorch has no such device here.", "Choose cpu or cuda."
        ) from error


def try_model(model: nn.Module, x: Any, where: str) -> Any:
    """Call a model with a few samples and return its result.

    Raises:
        TangentError: It fails.
    """
    try:
        with torch.no_grad():
            return model(x)
    except (RuntimeError, TypeError, ValueError, IndexError, AssertionError) as error:
        raise TangentError(
            f"The model fails on a few samples of {where}: {first_line(error)}",
            "Shapes, types and names of arguments must fit.",
            "Check the model (--model, -o) and the samples (--data, --shape).",
        ) from error


def compute(
    model: nn.Module,
    x1: Any,
    x2: Any = None,
    *,
    kernel: KernelOptions,
    output: OutputOptions,
    readout: Mapping[str, Any] | None = None,
) -> Tensor:
    """Compute the kernel of samples in memory.

    The default precision is the model's; samples in another one are converted. ``readout`` is what
    :func:`tangentlab._cli._readouts.load_readout` gives, None for a readout without targets.
    """
    dtype = parse_dtype(kernel.dtype)
    own = next((p.dtype for p in model.parameters()), None)
    parts = x1.values() if isinstance(x1, Mapping) else [x1]
    if dtype is None and any(isinstance(t, Tensor) and t.is_floating_point() and t.dtype != own for t in parts):
        dtype = own
    return ntk(
        model,
        x1,
        x2,
        **({"readout": parse_readout(kernel.readout)} if readout is None else readout),
        dtype=dtype,
        device=parse_device(kernel.device),
        memory_budget=kernel.memory,
        progress=output.progress,
    )


def load_network(recipe: Recipe, x: Any, output: OutputOptions) -> nn.Module:
    """Load the network of a recipe, and note where the weights of a factory come from."""
    model = recipe.load_model(x)
    if recipe.from_factory and recipe.checkpoint is None:
        note(f"Weights: {recipe.start}.", output.quiet)
    return model


def stored_network(path: StorePath, recipe: Recipe, x: Any, output: OutputOptions) -> nn.Module:
    """Load the network of a store: from its recipe, with the weights that the store contains.

    A factory that draws new weights at every call, regardless of the seed, gets those of the store. One that
    returns the same weights every time, but not the store's, has been changed since.

    Raises:
        TangentError: The network is not the store's.
    """
    model = load_network(recipe, x, output)
    kept = stored_weights(path) if recipe.checkpoint is None else None
    if kept is None or same_weights(model, kept):
        return model
    own = {name: tensor.cpu() for name, tensor in named_weights(model).items()}
    shapes, wanted = ({name: tensor.shape for name, tensor in part.items()} for part in (own, kept))
    if shapes != wanted or same_weights(recipe.load_model(x), own):
        raise TangentError(
            f"{path} holds another kernel. The model has other weights than those that it keeps (weights.pt).",
            "Tiles of two kernels would be mixed.",
            "Use another folder, or pass the model, the seed and the options that it was made with.",
        )
    restore_weights(path, model, kept)
    note(f"{recipe.model} draws other weights at every call: those that {path} keeps are used.", output.quiet)
    return model


def remembered(path: StorePath) -> tuple[Recipe, KernelOptions]:
    """Return how a store was made."""
    provenance = store.open(path).manifest.provenance
    options = dict(provenance.get("options", {}))
    known = {name: options[name] for name in ("readout", "dtype") if name in options}
    if options.get("targets") is not None:
        known["targets"] = Path(options["targets"])
    return Recipe.from_json(provenance.get("recipe")), KernelOptions(**known)


def machines(work: WorkOptions, memory: str | None) -> tuple[int, int, Any]:
    """Return the machines that the options select, the processes on each of them, and the memory of each process."""
    _refuse_contradictions(work)
    if work.shard:
        return engines.Shard.parse(work.shard).workers, 1, memory
    if work.scheduler not in (None, "local"):
        with engines.Dask(work.scheduler) as cluster:
            return cluster.workers, 1, memory
    processes = work.workers or (1 if work.scheduler is None else os.cpu_count() or 1)
    return 1, processes, _share(memory, work.workers)


def _share(memory: str | None, workers: int | None) -> Any:
    return parse_bytes(memory) // workers if memory and workers else memory


def _refuse_contradictions(work: WorkOptions) -> None:
    if work.shard and (work.scheduler or work.workers):
        raise TangentError("--shard was given with --scheduler or --workers.", "A shard is one process.", "Pass one.")
    if work.workers and work.scheduler not in (None, "local"):
        raise TangentError(
            "--workers was given with the address of a scheduler.", "The scheduler has its own workers.", "Pass one."
        )


@contextmanager
def engine(work: WorkOptions, memory: str | None) -> Iterator[tuple[Any, Any]]:
    """Open the engine that the options select; yield it and the memory of each of its local processes."""
    _refuse_contradictions(work)
    scheduler, workers, shard = work.scheduler, work.workers, work.shard
    share = _share(memory, workers)
    if shard:
        yield engines.Shard.parse(shard), memory
    elif scheduler:
        with engines.Dask(workers if scheduler == "local" else scheduler) as cluster:
            yield cluster, share
    elif workers and workers > 1:
        with engines.process_pool(workers) as pool:
            yield engines.Executor(pool, workers), share
    else:
        yield None, memory
