"""Running a plan for a whole kernel or its diagonal, in blocks that fit into memory."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

import torch
from torch import Tensor

from tangentlab._progress import Ticker
from tangentlab.kernels._arrangement import arrange
from tangentlab.kernels._contract import add_contracted
from tangentlab.kernels._disk import spill_folder
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._plan import Plan
from tangentlab.kernels._spill import Spilled
from tangentlab.kernels._verify import verify, verify_kernels
from tangentlab.kernels.factors import Factors, Key

_Source = Callable[[range], Factors]
"""Gives the factors of a range of samples."""


def kernel_blocks(plan: Plan, tick: Ticker) -> dict[str, Tensor]:
    """Return the kernel of each layer.

    If the factors of all samples do not fit into the budget, they are made once and kept on disk, or made for some
    layers at a time, with a pass over all samples for each portion, whichever takes less time. Only where those of a
    single layer do not fit, and the disk has no room, passes are repeated for blocks of samples.
    """
    network, work = plan.network, plan.work
    shape = network.readout.shape(work.rows, work.columns)
    budget = plan.budget(math.prod(shape) * network.kernel_dtype.itemsize * len(plan.layers))
    arrangement = arrange(plan, budget)
    outs = {name: torch.zeros(shape, dtype=network.kernel_dtype, device=network.device) for name in plan.layers}
    # Entries of the finished kernel are compared, unless it holds sums that plain differentiation does not give.
    finally_ = plan.problem.options.check and work.symmetric and network.readout.reduction in ("none", "squeeze")
    at_once = plan.problem.options.check and not finally_
    if arrangement.spilled:
        _add_spilled(plan, budget, outs, at_once, tick)
    elif arrangement.portions is None:
        factorizers = [plan.factorizer(side, budget) for side in (plan.left, plan.right)]
        sources = [partial(f, side.samples) for f, side in zip(factorizers, (plan.left, plan.right), strict=True)]
        _add_blocks(plan, sources, budget.resident, budget.batch, outs, at_once, tick)
    for portion in arrangement.portions or ():
        left, right = (portion.factorizer(side, budget) for side in (portion.left, portion.right))
        rows, columns = range(work.rows), range(work.columns)
        one = left(portion.left.samples, rows)
        two = one if work.symmetric else right(portion.right.samples, columns)
        if at_once:
            verify(portion, one, rows, two, columns)
        share = partial(_share, tick, 1 / len(arrangement.portions or ()))
        _fill(outs, one, two, rows, columns, network.readout.reduction, work.symmetric, share)
        del one, two  # before the next ones are made
    if finally_:
        verify_kernels(plan, outs)
    return outs


def _add_spilled(plan: Plan, budget: Budget, outs: dict[str, Tensor], check: bool, tick: Ticker) -> None:
    """Add the kernel from factors that are made in one pass over all samples and kept on disk meanwhile."""
    work = plan.work
    with ExitStack() as files:
        sides = [files.enter_context(Spilled(spill_folder(), len(side.samples))) for side in plan.sides]
        for side, spilled in zip(plan.sides, sides, strict=True):
            for runs, factors in plan.factorizer(side, budget).in_batches(side.samples, range(len(side.samples))):
                if not spilled.write(factors, runs):
                    raise ControlFlowChanged
                del factors
        left, right = sides[0], sides[-1]
        everything, rows, columns = list(left.sizes), range(work.rows), range(work.columns)
        if check:
            ends = [range(0, len(some), max(1, len(some) - 1)) for some in (rows, columns)]
            one = _ends(left, ends[0])
            verify(plan, one, ends[0], one if work.symmetric else _ends(right, ends[1]), ends[1])
            del one
        sizes = {key: max(side.sizes[key] for side in sides) for key in everything}
        room = budget.resident * budget.sample // work.samples
        portions = _together(sizes, room)
        if len(portions) > 1:
            portions = _together(sizes, room // 2)  # of which the next is read while one is contracted
        held = [sum(sizes[key] for key in keys) for keys in portions]
        ahead: list[Future[Factors]] = []
        for number, keys in enumerate(portions):
            share = partial(_share, tick, 1 / len(portions))
            resident = room * work.samples // held[number]
            if resident < work.samples:
                sources = [partial(side.read, keys) for side in (left, right)]
                _add_blocks(plan, sources, resident, resident, outs, False, share)
                continue
            found = [reading.result() for reading in ahead or _read_all(sides, keys, (rows, columns))]
            fits = number + 1 < len(portions) and sum(held[number : number + 2]) <= room
            ahead = _read_all(sides, portions[number + 1], (rows, columns)) if fits else []
            reduction = plan.network.readout.reduction
            _fill(outs, found[0], found[-1], rows, columns, reduction, work.symmetric, share)
            del found


def _read_all(sides: Sequence[Spilled], keys: Sequence[Key], ranges: tuple[range, range]) -> "list[Future[Factors]]":
    """Begin to read some factors of all samples of each side."""
    return [side.read_ahead(keys, rows) for side, rows in zip(sides, ranges, strict=False)]


def _ends(spilled: Spilled, ends: range) -> Factors:
    """Return the factors of the first and last samples."""
    found = [spilled.read(list(spilled.sizes), range(row, row + 1)) for row in ends]
    both = Factors({key: part.allocate(len(ends)) for key, part in found[0].parts.items()})
    for at, one in enumerate(found):
        for key, part in one.parts.items():
            both.parts[key][at : at + 1].write(part)
    return both


def _together(sizes: dict[Key, int], room: int) -> list[list[Key]]:
    """Return factors in portions that fit into ``room`` bytes per sample; a larger one by itself."""
    portions: list[list[Key]] = [[]]
    for key, size in sizes.items():
        if portions[-1] and sum(sizes[k] for k in portions[-1]) + size > room:
            portions.append([])
        portions[-1].append(key)
    return portions


def _add_blocks(
    plan: Plan,
    sources: Sequence[_Source],
    resident: int,
    batch: int,
    outs: dict[str, Tensor],
    check: bool,
    tick: Ticker,
) -> None:
    """Add the kernel by blocks of rows and columns: the factors of ``resident`` samples are there at a time."""
    n1, n2, symmetric = plan.work.rows, plan.work.columns, plan.work.symmetric
    reduction, (left, right) = plan.network.readout.reduction, sources
    # Hold many rows, stream a few columns: the fewer row blocks, the fewer recomputations.
    columns = max(1, min(resident // 8, batch)) if resident >= 8 else 1
    rows = max(1, resident - columns)
    for i in range(0, n1, rows):
        row_range = range(i, min(i + rows, n1))
        one = left(row_range)
        if check and i == 0 and symmetric:
            verify(plan, one, row_range, one, row_range)
        if symmetric:
            _fill(outs, one, one, row_range, row_range, reduction, True, tick)
        first = row_range.stop if symmetric else 0
        for j in range(first, n2, columns):
            column_range = range(j, min(j + columns, n2))
            two = right(column_range)
            if check and i == 0 and j == 0 and not symmetric:
                verify(plan, one, row_range, two, column_range)
            _fill(outs, one, two, row_range, column_range, reduction, False, tick)
            if symmetric:
                _mirror(outs, row_range, column_range, reduction)
                tick(len(row_range) * len(column_range))
            del two
        del one


def _fill(
    outs: dict[str, Tensor],
    one: Factors,
    two: Factors,
    rows: range,
    columns: range,
    reduction: str,
    symmetric: bool,
    tick: Ticker,
) -> None:
    """Add the contraction of two sets of factors to their block of each result."""
    lefts = {"": one} if outs.keys() == {""} else one.layers()
    rights = lefts if one is two else {"": two} if outs.keys() == {""} else two.layers()
    for name, left in lefts.items():
        out, right = outs[name], rights[name]
        if reduction == "per_class":
            targets = [
                (left.select(r), right.select(r), out[r, rows.start : rows.stop, columns.start : columns.stop])
                for r in range(left.readouts)
            ]
        else:
            if reduction == "trace":
                left, right = left.merged(), right.merged()
            matrix = out.view(out.shape[0] * left.readouts, -1)
            height, width = left.readouts, right.readouts
            part = matrix[rows.start * height : rows.stop * height, columns.start * width : columns.stop * width]
            targets = [(left, right, part)]
        for one_, two_, target in targets:
            add_contracted(one_, two_, target, symmetric, partial(_share, tick, 1 / (len(lefts) * len(targets))))


def _share(tick: Ticker, share: float, steps: float = 1, note: str | None = None) -> None:
    tick(steps * share, note)


def _mirror(outs: dict[str, Tensor], rows: range, columns: range, reduction: str) -> None:
    """Copy a block of the upper triangle to the lower one."""
    one, two = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
    for out in outs.values():
        if reduction == "none":
            out[two, :, one, :] = out[one, :, two, :].permute(2, 3, 0, 1)
        elif reduction == "per_class":
            out[:, two, one] = out[:, one, two].mT
        else:
            out[two, one] = out[one, two].T


def diagonal_blocks(plan: Plan, tick: Ticker) -> dict[str, Tensor]:
    """Return only the blocks of samples with themselves, batch by batch: no factor outlives its batch."""
    readout, side = plan.network.readout, plan.left
    budget = plan.budget(plan.work.rows * readout.size**2 * plan.network.kernel_dtype.itemsize * len(plan.layers))
    assert budget.resident  # refuses where not even a batch fits
    factorizer = plan.factorizer(side, budget)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    for start in range(0, len(side.samples), factorizer.batch_size):
        rows = range(start, min(start + factorizer.batch_size, len(side.samples)))
        factors = factorizer(side.samples, rows)
        if plan.problem.options.check and start == 0:
            verify(plan, factors, rows, factors, rows)
        for name, own in (factors.layers() if plan.work.by_layer else {"": factors}).items():
            parts[name].append(_reduced(own.cast(plan.network.kernel_dtype).diagonal(), readout.reduction))
        tick(len(rows))
    axis = 1 if readout.reduction == "per_class" else 0
    return {name: torch.cat(blocks, axis) for name, blocks in parts.items()}


def _reduced(blocks: Tensor, reduction: str) -> Tensor:
    """Return blocks (n, R, R) as the readout's reduction wants them."""
    if reduction == "squeeze":
        return blocks[:, 0, 0]
    inner = blocks.diagonal(dim1=1, dim2=2)
    if reduction == "trace":
        return inner.sum(1)
    return inner.T if reduction == "per_class" else blocks
