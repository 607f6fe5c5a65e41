"""Where the factors of all samples are kept: in memory, on disk, or nowhere, with passes for some layers at a time."""

from dataclasses import dataclass

from tangentlab.kernels._calibration import disk_rates, rates
from tangentlab.kernels._disk import room_on_disk, spill_folder
from tangentlab.kernels._groups import Group
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._plan import Plan

_SLOWER = 1.6
"""How many times slower passes are than their operations in large products (measured: GPT-2 on a CPU)."""


@dataclass(frozen=True)
class Arrangement:
    """Where factors are kept.

    Attributes:
        portions: Plans for some of the parameters each, whose factors are made one after the other; None if they are
            spilled, or if those of a single layer do not fit.
        passes: How often each sample goes forward and backward.
        spilled: Bytes that are kept on disk meanwhile.
    """

    portions: list[Plan] | None
    passes: float
    spilled: int


def arrange(plan: Plan, budget: Budget) -> Arrangement:
    """Choose where factors are kept, by the time that passes and the disk take.

    Where the factors of a single layer do not fit, passes would have to be repeated for every block of rows, so there
    they are spilled unless the disk has no room.
    """
    portions = plan.portions(budget.resident * budget.sample)
    if portions is None:
        blocks = -(-plan.work.rows // max(1, budget.resident))  # each block of rows meets all columns after it again
        passes = (blocks + 1) / 2
    else:
        passes = len(portions)
    if passes <= 1:
        return Arrangement(portions, passes, 0)
    size = sum(len(side.samples) * plan.sample_bytes(side) for side in plan.sides)
    if size > room_on_disk(spill_folder()):
        return Arrangement(portions, passes, 0)
    one_pass = pass_seconds(plan)
    if portions is None or disk_seconds(size, one_pass) < (passes - 1) * one_pass:
        return Arrangement(None, 1.0, size)
    return Arrangement(portions, passes, 0)


def disk_seconds(size: int, meanwhile: float) -> float:
    """Return the time of writing and reading that many bytes, where writing may go on for some time unnoticed."""
    disk = disk_rates(spill_folder())
    return max(0.0, size / disk.write - meanwhile) + size / disk.read


def pass_seconds(plan: Plan) -> float:
    """Return the time that all samples take forward and backward."""
    forward = sum(forward_operations(plan, group) for group in plan.left.groups)
    work = (1 + plan.network.readout.size) * plan.work.samples * forward
    return _SLOWER * work / rates(plan.network.device, plan.network.dtype).speed


def forward_operations(plan: Plan, group: Group) -> float:
    """Return the operations of a forward pass of one sample through the operations that use these parameters."""
    uses = [plan.left.findings.uses[i].use for i in group.uses]
    compact = [use.compact_cost(1) for use in uses]
    return sum(
        use.written_out_cost(1).product * use.positions if cost is None else cost.product
        for use, cost in zip(uses, compact, strict=True)
    )
