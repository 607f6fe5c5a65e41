"""How a kernel would be computed, and where its time would go: :func:`explain`."""

import math
from typing import TYPE_CHECKING, Any

from torch import nn

from tangentlab.kernels._arrangement import Arrangement, arrange, forward_operations
from tangentlab.kernels._calibration import rates
from tangentlab.kernels._cost import Cost, Rates, by_pairs, contraction, price
from tangentlab.kernels._groups import Group
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import Plan, make_plan
from tangentlab.kernels._problem import Problem

if TYPE_CHECKING:  # pandas takes long to import, and a kernel does not need it
    import pandas as pd


def explain(model: nn.Module, x: Any, **options: Any) -> "pd.DataFrame":
    """Show how the kernel of a network would be computed: one row per group of parameters.

    Cost: a few forward and backward passes of a few samples, as before every kernel. The first call on a machine also
    measures its rates, in a fraction of a second.

    Args:
        model: The module.
        x: Samples.
        options: As for :func:`ntk`.

    Returns:
        Columns ``layer`` and ``parameters``; ``operation``, or why the fallback is taken; ``form``; ``floats``, the
        numbers kept per sample; ``operations``; and ``share``, the expected share of the time of passes and contraction
        (the probe and the last check, whose time does not grow with the number of samples, are not in it).

        The form is "compact" for factors; "late" for factors whose gradients are written out when they are contracted,
        a few outputs at a time; "gradient" for gradients written out from a rule; and "fallback" for plain automatic
        differentiation, one sample at a time. Operations are those of a matrix product, for all samples, forward and
        backward passes included: an entry of an entrywise product and a number written to memory count as many as this
        device does in their time.

        ``table.attrs["passes"]`` is how often each sample goes forward and backward: once, unless the factors of all
        samples do not fit into ``memory_budget`` and passes take less time than the disk. ``table.attrs["spilled"]`` is
        how many bytes of factors are kept on disk meanwhile: 0, unless they do not fit and that takes less time.

    Examples:
        >>> import torch
        >>> from tangentlab import explain
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> table = explain(network, x, readout="pntk")
        >>> list(table["layer"])
        ['0', '2']

    See also:
        :func:`tangentlab.ntk`, :func:`tangentlab.store.estimate`.
    """
    options.pop("per_layer", None)
    plan = make_plan(Problem.pose(model, x, options=Options(**options), kind="gram"))
    own = rates(plan.network.device, plan.network.dtype)
    costs = [_costs(plan, group) for group in plan.left.groups]
    arrangement = _arranged(plan)
    passes = arrangement.passes
    work = [_operations(plan, group, *cost, own, passes) for group, cost in zip(plan.left.groups, costs, strict=True)]
    alone = passes * _fallback_passes(plan, own)
    work = [w + alone * g.size if g.form == "fallback" else w for w, g in zip(work, plan.left.groups, strict=True)]
    rows = [
        {
            "layer": group.layer,
            "parameters": ", ".join(group.parameters),
            "operation": group.operation,
            "form": "late" if _is_late(plan, group, *cost, own) else group.form,
            "floats": plan.group_bytes(group) // plan.network.dtype.itemsize,
            "operations": operations,
            "share": operations / max(1.0, sum(work)),
        }
        for group, cost, operations in zip(plan.left.groups, costs, work, strict=True)
    ]
    import pandas as pd

    table = pd.DataFrame(rows)
    table.attrs["passes"] = passes
    table.attrs["spilled"] = arrangement.spilled
    return table


def _arranged(plan: Plan) -> Arrangement:
    """Return where factors are kept within the memory budget."""
    network, work = plan.network, plan.work
    shape = network.readout.shape(work.rows, work.columns)
    return arrange(plan, plan.budget(math.prod(shape) * network.kernel_dtype.itemsize))


def _costs(plan: Plan, group: Group) -> tuple[Cost | None, Cost]:
    """Return the costs of the compact form, if that is the one chosen, and of gradients written out."""
    readouts = plan.network.readout.size
    uses = [plan.left.findings.uses[i].use for i in group.uses]
    use = group.weight_use or next(iter(uses), None)
    if use is None:
        size = group.size * readouts
        return None, Cost(2.0 * readouts * size, 0.0, size, 2.0 * size, 0.0)
    return use.compact_cost(readouts) if group.form == "compact" else None, use.written_out_cost(readouts)


def _is_late(plan: Plan, group: Group, short: Cost | None, long: Cost, own: Rates) -> bool:
    work, readouts = plan.work, plan.network.readout.size
    if short is None:
        return False
    return contraction(short, long, work, readouts, own) < by_pairs(short, work, readouts, own)


def _operations(plan: Plan, group: Group, short: Cost | None, long: Cost, own: Rates, repeats: float) -> float:
    """Return the operations of passes, factors and contraction of a group; of the fallback without its passes."""
    work, readouts = plan.work, plan.network.readout.size
    passes = repeats * (1 + readouts) * forward_operations(plan, group) * work.samples
    if short is not None:
        return passes + work.samples * own.store * short.floats + contraction(short, long, work, readouts, own)
    making = work.samples * (price(long.sample, own) + own.store * long.floats)
    return passes + making + work.pairs(readouts) * price(long.pair, own)


def _fallback_passes(plan: Plan, own: Rates) -> float:
    """Return the operations of the passes of every sample alone, for each parameter in the fallback.

    Such a pass reads every weight for one sample, which takes longer than its operations.
    """
    groups = plan.left.groups
    alone = sum(group.size for group in groups if group.form == "fallback")
    if not alone:
        return 0.0
    whole = sum(forward_operations(plan, g) for g in groups) + own.entrywise * sum(g.size for g in groups)
    return (1 + plan.network.readout.size) * plan.work.samples * whole / alone
