"""Computing a kernel into a store: :func:`compute`, :func:`create`, :func:`append` and :func:`repair`."""

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._progress import progress_bar
from tangentlab.engines import as_engine
from tangentlab.kernels.internal import Options, ParametersLike, ReadoutLike
from tangentlab.store._array import open_array
from tangentlab.store._files import PRIVATE, disk_errors
from tangentlab.store._inventory import Inventory
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._place import Place, as_place
from tangentlab.store._rates import spill_folder
from tangentlab.store._setup import Request, capacity, prepare
from tangentlab.store._tasks import run_tasks
from tangentlab.store._tiles import units
from tangentlab.store._worker import Worker


def compute(
    model: nn.Module,
    x: Any,
    path: str | os.PathLike[str],
    *,
    readout: ReadoutLike = "pntk",
    targets: Any = None,
    parameters: ParametersLike = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    tile: int | None = None,
    batch_size: int | None = None,
    memory_budget: int | float | str | None = None,
    engine: Any = None,
    scratch: str | os.PathLike[str] | None = None,
    provenance: Mapping[str, Any] | None = None,
    keep_weights: bool = False,
    progress: bool | None = None,
    check: bool = True,
) -> StoredKernel:
    """Compute the empirical neural tangent kernel of samples with themselves into a store.

    The kernel may be larger than memory. Finished tiles survive any interruption: repeat the call to resume. Several
    processes may make the same call at the same time.

    Args:
        model: As for :func:`tangentlab.ntk`.
        x: N samples.
        path: The store: a folder, or an address in an object store (``"s3://bucket/kernel.zarr"``, also ``gs://``,
            ``az://`` and ``memory://``), for which the extra ``tangentlab[cloud]`` is needed; by convention its name
            ends in ``.zarr``. Credentials come from the environment.
        readout: ``"pntk"``, an int or ``"trace"``: a kernel (N, N). ``"full"`` or an (O, R) tensor: (N R, N R); rows
            run over samples, then over readouts. A function of a sample's outputs and its target of R numbers:
            (N R, N R).
        targets: One target per sample for such a function; None for those that come with the samples.
        parameters: The parameters to differentiate with respect to.
        output: A function that takes the output tensor from what the model returns.
        input: A function that takes the model's input from an item of a Dataset or a batch of a DataLoader.
        dtype: The precision to compute and store in; None for the model's.
        device: The device to compute on.
        tile: Samples per side of a tile; None for 2048 / R, or fewer if memory is short.
        batch_size: Samples per forward pass; None for automatic.
        memory_budget: Bytes ("4GiB") per process; None for 60 % of the free memory.
        engine: Where tiles are computed: None for this process, any ``concurrent.futures.Executor``, or an engine of
            :mod:`tangentlab.engines`. With ``Shard(i, n)`` the result is complete when all shards have run.
        scratch: A folder for factors that do not fit into memory or are shared among processes; None for one inside
            the store, or in this machine's temporary folder if that is in an object store; it is removed at the end.
        provenance: Plain values to keep in the manifest, for example how model and data were made.
        keep_weights: Whether a new store keeps the model's weights and buffers, in ``weights.pt`` inside the folder.
        progress: Whether to show a progress bar; None shows one on a terminal.
        check: Whether to compare the kernel of a few samples with plain automatic differentiation first.

    Returns:
        The stored kernel.

    Raises:
        TangentError: The kernel would be wrong; the store holds another kernel (every difference is named, see
            :class:`tangentlab.store.Identity`); the disk is full; the folder cannot be written to.

    The value of a tile depends on the model, the samples and the tile plan, not on which process computes it when: an
    interrupted or shared computation gives the same bits as an uninterrupted one on the same kind of processor and
    version of PyTorch. (Matrix libraries may round differently for other numbers of threads; on the tested CPUs they
    do not. A model that places samples by their content may need the fallback in one process and not in another; then
    there is a warning, and the two are equal up to rounding.)

    Cost: that of :func:`tangentlab.ntk`, four passes of one sample in double precision that identify the network, and
    N^2 R^2 / 2 numbers on disk. Factors are computed once if they fit into memory; otherwise they are spilled to
    ``scratch`` or computed again, whichever a measurement shows to be faster.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", tile=8, progress=False)
        >>> kernel.shape
        (20, 20)
        >>> kernel[:2, :3].shape
        torch.Size([2, 3])

    See also:
        :func:`tangentlab.store.append`, :func:`tangentlab.store.status`, :func:`tangentlab.linalg.eigh`,
        :func:`tangentlab.ntk`.
    """
    options = Options(
        readout, parameters, output, input, dtype, device, batch_size, memory_budget, check, progress, targets
    )
    request = Request(model, x, options, tile, provenance or {}, keep_weights)
    return fill(request, as_place(path), engine=engine, scratch=scratch)


def create(model: nn.Module, x: Any, path: str | os.PathLike[str], **options: Any) -> StoredKernel:
    """Create the store of a kernel, or check an existing one, and compute nothing.

    Processes that are started later, for instance the tasks of a job array, compute its tiles.

    Cost: hashing all samples and weights, the probe of :func:`tangentlab.ntk`, and four passes of one sample in double
    precision.

    Args:
        model: As for :func:`compute`.
        x: N samples.
        path: The store.
        options: As for :func:`compute`, without engine and scratch.

    Raises:
        TangentError: As for :func:`compute`.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.create(network, x, "empty.zarr", readout="pntk", tile=8)
        >>> store.missing_shards("empty.zarr", 2)
        [0, 1]

    See also:
        :func:`tangentlab.store.compute`, :func:`tangentlab.store.missing_shards`,
        :class:`tangentlab.engines.Shard`.
    """
    prepare(Request.of(model, x, **options), as_place(path))
    return StoredKernel(path)


def append(model: nn.Module, x: Any, path: str | os.PathLike[str], **options: Any) -> StoredKernel:
    """Append samples to a stored kernel; existing tiles are not computed again.

    Cost: the missing tiles, and the factors of all samples that they need.

    Args:
        model: The model that the store was made with.
        x: All samples: the stored ones, in their order, followed by the new ones.
        path: The store.
        options: As for :func:`compute`, unchanged.

    Returns:
        The stored kernel of all samples. Repeat an interrupted call to resume it.

    Raises:
        TangentError: The first samples are not the stored ones, or anything else differs.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", tile=8, progress=False)
        >>> more = torch.cat([x, torch.randn(4, 4)])
        >>> longer = store.append(network, more, "kernel.zarr", readout="pntk", progress=False)
        >>> longer.shape
        (24, 24)

    See also:
        :func:`tangentlab.store.compute`.
    """
    fill_options = {key: options.pop(key) for key in ("engine", "scratch") if key in options}
    return fill(Request.of(model, x, **options), as_place(path), append=True, **fill_options)


def repair(model: nn.Module, x: Any, path: str | os.PathLike[str], **options: Any) -> StoredKernel:
    """Compute only the tiles of a store that are damaged or missing.

    Cost: reading every tile once, hashing all samples twice, and computing the damaged and missing tiles and the
    factors that they need.

    Args:
        model: The model that the store was made with.
        x: Its samples.
        path: The store.
        options: As for :func:`compute`.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> store.repair(network, x, "kernel.zarr", readout="pntk", progress=False).shape
        (20, 20)

    See also:
        :func:`tangentlab.store.status`, :func:`tangentlab.store.compute`.
    """
    kernel = StoredKernel(path)
    fill_options = {key: options.pop(key) for key in ("engine", "scratch") if key in options}
    request = Request.of(model, x, **options)
    prepare(request, kernel.place)  # checks the store before anything is removed
    kernel.discard(kernel.verify().damaged)
    return fill(request, kernel.place, **fill_options)


def fill(
    request: Request,
    place: Place,
    *,
    engine: Any = None,
    scratch: str | os.PathLike[str] | None = None,
    append: bool = False,
) -> StoredKernel:
    """Compute the missing tiles of a store."""
    places, options = as_engine(engine), request.options
    kernels, manifest = prepare(request, place, append)
    plan, panels = manifest.plan, capacity(kernels, manifest.plan)
    place.sweep()
    missing = set(Inventory(place, open_array(place)[0], manifest).missing())
    folder = Path(scratch or place.scratch()) / f"factors-{manifest.fingerprint}"
    if missing:
        with disk_errors(folder):
            spilled = spill_folder(kernels, plan, panels, places.workers, folder)
        groups = [[t for t in unit if t in missing] for unit in places.share(units(plan, places.workers))]
        mine = [group for group in groups if group]
        total = sum(plan.entries(tile) for group in mine for tile in group)
        with progress_bar("Kernel", total, options.progress) as tick:
            if places.here:
                worker = Worker(kernels, place, spilled, panels, manifest.key, options.check)
                if spilled is not None and places.workers > 1:
                    worker.factorize(places.share(range(plan.panels)))
                worker.run([tile for group in mine for tile in group], lambda tile: tick(plan.entries(tile)))
            else:
                if options.memory_budget is None:  # shared with the other workers of this machine
                    share = kernels.memory // min(places.workers, os.cpu_count() or 1)
                    request = replace(request, options=replace(options, memory_budget=share))
                run_tasks(places, request, place, spilled, mine, plan, options.check, tick)
    kernel = StoredKernel(place)
    if kernel.complete:
        shutil.rmtree(folder, ignore_errors=True)
        place.clear(PRIVATE)
    return kernel
