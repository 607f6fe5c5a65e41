"""From a request to a store that is ready to be filled."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab.kernels.internal import Budget, Options, Plan, Problem, ReadoutLike, Samples, make_plan, takes_targets
from tangentlab.store._array import DTYPES, create, enlarge, exists, open_array
from tangentlab.store._identity import Attributes, attributes, identify
from tangentlab.store._manifest import Manifest, describe, grown
from tangentlab.store._place import PathLike, Place, as_place
from tangentlab.store._tiles import DEFAULT_TILE, MOST_TILES, TilePlan
from tangentlab.store._worker import TILES_IN_MEMORY


@dataclass(frozen=True)
class Request:
    """A requested kernel, in a form that can be sent to another process.

    Attributes:
        model: The module.
        x: All samples.
        options: The options of the kernel; the memory budget is per process.
        tile: Samples per panel, if the user chose it.
        provenance: The user's notes.
        keep_weights: Whether a new store keeps the model's weights.
    """

    model: nn.Module
    x: Any
    options: Options
    tile: int | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    keep_weights: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.x, DataLoader):  # its order may change: read it once
            options = self.options
            read = Samples(self.x, device=torch.device("cpu"), input=options.input, model=self.model)
            object.__setattr__(self, "x", read.source)
            if options.input is not None:  # it has been applied, and what it kept stays: no labels are split off
                options = replace(options, input=dict)
            if options.targets is None and takes_targets(options.readout):
                options = replace(options, targets=read.targets)
            object.__setattr__(self, "options", options)

    @classmethod
    def of(
        cls,
        model: nn.Module,
        x: Any,
        *,
        tile: int | None = None,
        provenance: Mapping[str, Any] | None = None,
        keep_weights: bool = False,
        readout: ReadoutLike = "pntk",
        **options: Any,
    ) -> "Request":
        """Return the request of a user's arguments; ``options`` as for :func:`tangentlab.ntk`."""
        return cls(model, x, Options(readout, **options), tile, provenance or {}, keep_weights)

    def kernel_plan(self, batch: int | None = None) -> Plan:
        """Plan the kernel of the request.

        Raises:
            TangentError: The requested kernel cannot be stored.
        """
        self.options.refuse_readouts(
            ("per_class",),
            "A store",
            "A stored kernel is one symmetric matrix; this would be one per output.",
            'Store one output at a time (readout=0, 1, ...), or "full", whose blocks hold all of them.',
        )
        options = self.options if batch is None else replace(self.options, batch_size=batch)
        kernel_plan = make_plan(Problem.pose(self.model, self.x, options=options, kind="gram"))
        name = str(kernel_plan.network.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise TangentError(
                f"A store cannot hold {name}.",
                "All Zarr clients read half, single and double precision.",
                f"Pass dtype=, one of {', '.join(f'torch.{known}' for known in DTYPES)}.",
            )
        return kernel_plan


def choose_plan(
    request: Request, kernel_plan: Plan, stored: Manifest | None = None, samples: int | None = None
) -> TilePlan:
    """Choose the tiling: the user's, that of an existing store, or the one that memory allows.

    Args:
        request: The request.
        kernel_plan: How the kernel is computed.
        stored: The manifest of an existing store.
        samples: The number of samples; None for as many as there are.
    """
    samples = len(kernel_plan.left.samples) if samples is None else samples
    readout = kernel_plan.network.readout
    readouts = 1 if readout.reduction == "trace" else readout.size
    tile, batch = request.tile, request.options.batch_size
    if tile is not None and (not isinstance(tile, int) or isinstance(tile, bool) or tile < 1):
        raise TangentError(f"The tile is {tile!r}.", "", "Pass a positive number of samples, or None for automatic.")
    if stored is not None:
        tile, batch = tile or stored.tile, batch or stored.batch
    if tile is None:
        tile = min(max(1, DEFAULT_TILE // readouts), samples)
        while tile > 1 and _capacity(kernel_plan, readouts, tile, samples) < min(2, -(-samples // tile)):
            tile = -(-tile // 2)
    if (tiles := TilePlan(samples, readouts, tile, 1).count) > MOST_TILES:
        raise TangentError(
            f"{samples} samples in tiles of {tile} make {tiles} tiles.",
            f"Each tile is a file, and a store has at most {MOST_TILES}.",
            "Pass a larger tile.",
        )
    if batch is None:
        batch = _budget(kernel_plan, readouts, tile).batch
    return TilePlan(samples, readouts, tile, min(batch, tile))


def capacity(kernel_plan: Plan, plan: TilePlan) -> int:
    """Compute how many panels of factors fit into memory.

    Raises:
        TangentError: Not even two panels fit.
    """
    panels = _capacity(kernel_plan, plan.readouts, plan.tile, plan.samples)
    if panels >= min(2, plan.panels):
        return max(2, panels)
    budget = _budget(kernel_plan, plan.readouts, plan.tile)
    factors, working = 2 * plan.tile * budget.sample, working_memory(kernel_plan, plan)
    raise TangentError(
        f"The memory budget of {show_bytes(budget.total)} is too small for tiles of {plan.tile} samples.",
        f"The factors of two panels take {show_bytes(factors)}; tiles that wait to be written, a batch of "
        f"{plan.batch} and a contraction take {show_bytes(working)}.",
        f"Pass memory_budget of at least {show_bytes(1.05 * (factors + working))}, or a smaller tile to a new store.",
    )


def working_memory(kernel_plan: Plan, plan: TilePlan) -> int:
    """Compute the bytes that a process needs besides the factors it keeps."""
    budget = _budget(kernel_plan, plan.readouts, plan.tile)
    return budget.result + max(budget.tile + plan.batch * budget.batch_sample, budget.check)


def _capacity(kernel_plan: Plan, readouts: int, tile: int, samples: int) -> int:
    try:
        resident = _budget(kernel_plan, readouts, tile).resident
    except TangentError:
        if tile == 1:
            raise
        return 0
    return -(-samples // tile) if resident >= samples else resident // tile


def _budget(kernel_plan: Plan, readouts: int, tile: int) -> Budget:
    size = torch.empty((), dtype=kernel_plan.network.dtype).element_size()
    return kernel_plan.budget(TILES_IN_MEMORY * (tile * readouts) ** 2 * size, tile)


def prepare(request: Request, place: PathLike | Place, append: bool = False) -> tuple[Plan, Manifest]:
    """Plan the kernel of a request, and create its store or check the existing one.

    Args:
        request: The request.
        place: The store.
        append: Whether samples beyond the stored ones are added.

    Raises:
        TangentError: The store holds another kernel; every difference is named.
    """
    place, before = as_place(place), attributes(request.model)
    kernel_plan = request.kernel_plan()
    with place.errors():
        stored = open_array(place)[1] if exists(place) else None
        if stored is None and append:
            open_array(place)
        kernel_plan, wanted = _wanted(request, kernel_plan, stored, before)
        if stored is None and not create(place, wanted, request.model if request.keep_weights else None):
            # Another process was faster, and may have chosen another plan.
            stored = open_array(place)[1]
            kernel_plan, wanted = _wanted(request, kernel_plan, stored)
        if stored is not None:
            if append and wanted.plan.samples > stored.samples[-1].stop:
                grown(stored, wanted).refuse_other(wanted, place)
                stored = grown(stored, wanted)
                enlarge(place, stored)
            stored.refuse_other(wanted, place)
    return kernel_plan, stored or wanted


def recognize(request: Request, stored: Manifest, where: object) -> Plan:
    """Plan the kernel of a request and check that a store holds its kernel.

    Raises:
        TangentError: The store holds another kernel; every difference is named.
    """
    kernel_plan, wanted = _wanted(request, request.kernel_plan(stored.batch), stored)
    stored.refuse_other(wanted, where)
    return kernel_plan


def _wanted(
    request: Request, kernel_plan: Plan, stored: Manifest | None, before: Attributes | None = None
) -> tuple[Plan, Manifest]:
    """Return how a request is computed in batches of the store's size, and the manifest that it should have."""
    plan = choose_plan(request, kernel_plan, stored)
    kernel_plan = kernel_plan.batched(plan.batch)
    capacity(kernel_plan, plan)  # refuses before anything is written
    stops = [segment.stop for segment in stored.samples if segment.stop <= plan.samples] if stored else []
    if not stops or stops[-1] != plan.samples:
        stops.append(plan.samples)
    known = stored.identity if stored is not None else None
    identity = identify(kernel_plan, request.options.readout, request.options.output, stops[0], before, known)
    options = request.options.readout, request.options.parameters, request.options.output
    return kernel_plan, describe(kernel_plan, *options, plan, stops, identity, dict(request.provenance))
