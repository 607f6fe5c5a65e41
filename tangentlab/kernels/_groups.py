"""Groups of parameters: which form the gradients of each take, by what a kernel of the given size costs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

from tangentlab.kernels import _cost as cost
from tangentlab.kernels._findings import Findings
from tangentlab.kernels._record import SeenUse
from tangentlab.kernels.rules import Tied, Use

Form = Literal["gradient", "compact", "fallback"]


@dataclass(frozen=True)
class Group:
    """Parameters whose gradients are kept as one factor: a weight, alone or with the bias that shares its gradients.

    Attributes:
        layer: The layer they belong to.
        parameters: Their names.
        uses: Positions of the weight's uses in the recording.
        form: "compact": factors by the rule. "gradient": written out, from the rules. "fallback": written out, by
            plain automatic differentiation.
        plain: Whether every use is of one and the same reordering of the whole parameter, scaled by ``scale``.
        scale: That scale.
        bias: The input of the bias that shares the gradients (0: none).
        operation: The operation, or why the fallback is taken.
        size: Entries of the parameters.
        key: What the gradients are taken of, and how they are ordered, where all uses agree on it.
        weight_use: All uses as one, where the compact form exists.
    """

    layer: str
    parameters: tuple[str, ...]
    uses: tuple[int, ...]
    form: Form
    plain: bool
    scale: float
    bias: float
    operation: str
    size: int
    key: tuple[object, ...] = ()
    weight_use: Use | None = field(default=None, compare=False, repr=False)


def make_groups(findings: Findings, parameters: dict[str, Tensor]) -> list[Group]:
    """Return the groups of all used parameters, each in the form that always exists."""
    groups: list[Group] = []
    for name in parameters:
        if name in findings.unused:
            continue
        if name in findings.fallback:
            reason = findings.fallback[name]
            groups.append(
                Group(layer_of(name), (name,), (), "fallback", False, 1.0, 0.0, reason, parameters[name].numel())
            )
            continue
        indices = tuple(i for i, seen in enumerate(findings.uses) if name in seen.source.parameters)
        seen = [findings.uses[i] for i in indices]
        if not seen:
            continue
        plain = len({s.source.key for s in seen}) == 1 and seen[0].source.scale is not None
        scale = seen[0].source.scale if plain else None
        merged = merge(seen) if plain else None
        if merged is not None and merged.compact_cost(1) is None:
            merged = None
        groups.append(
            Group(
                layer_of(name),
                (name,),
                indices,
                "gradient",
                plain,
                1.0 if scale is None else scale,
                0.0,
                ", ".join(dict.fromkeys(s.operation for s in seen)),
                parameters[name].numel(),
                (seen[0].source.key, None if merged is None else merged.order) if plain else (),
                merged,
            )
        )
    return groups


def _share_biases(groups: list[Group], uses: Sequence[SeenUse]) -> list[Group]:
    """Let a bias join the weight whose output gradients it shares at every use."""

    def operations(group: Group) -> tuple[int, ...]:
        return tuple(uses[i].number for i in group.uses)

    weights = {operations(g): g for g in groups if g.form == "compact" and g.weight_use and g.weight_use.takes_bias}
    joined: dict[str, Group] = {}
    taken: set[str] = set()
    for group in groups:
        weight = weights.get(operations(group)) if group.plain else None
        if weight is None or weight is group or weight.layer != group.layer or weight.parameters[0] in joined:
            continue
        if all(uses[i].use.is_bias for i in group.uses):
            joined[weight.parameters[0]] = replace(
                weight,
                parameters=(*weight.parameters, *group.parameters),
                bias=group.scale,
                size=weight.size + group.size,
            )
            taken.update(group.parameters)
    return [joined.get(g.parameters[0], g) for g in groups if g.parameters[0] not in taken]


def choose_forms(
    sides: Sequence[tuple[list[Group], Sequence[SeenUse]]],
    readouts: int,
    work: cost.Work,
    room: float = math.inf,
    rates: cost.Rates = cost.DEFAULT,
) -> list[list[Group]]:
    """Choose the compact form where it is the cheaper one for that much work, and let biases join it.

    Args:
        sides: Groups and uses for each set of samples; both sets get the same forms.
        readouts: R.
        work: What the factors are for.
        room: Numbers per sample that there is memory for. Beyond it, more parameters take the compact form, those
            first that save most: computing factors again costs more than any form.
        rates: What the device is fast at.
    """
    names = [{group.parameters: group for group in groups} for groups, _ in sides]
    alike = {
        parameters
        for parameters in names[0]
        if all(parameters in own for own in names)
        and len({own[parameters].key for own in names}) == 1
        and len({use.kind if (use := own[parameters].weight_use) else None for own in names}) == 1
    }
    possible = {p: [use for own in names if (use := own[p].weight_use)] for p in alike}
    compact = {
        parameters
        for parameters, uses in possible.items()
        if uses and all(cost.compact_is_cheaper(use, readouts, work, rates) for use in uses)
    }
    savings = {p: min(_saving(use, readouts) for use in uses) for p, uses in possible.items() if uses}
    missing = max(sum(group.size for group in groups) for groups, _ in sides) * readouts - room
    missing -= sum(savings[p] for p in compact)
    for parameters, saving in sorted(savings.items(), key=lambda item: -item[1]):
        if missing <= 0 or saving <= 0:
            break
        if parameters not in compact:
            compact.add(parameters)
            missing -= saving

    def formed(group: Group) -> Group:
        if group.parameters in compact:
            return replace(group, form="compact")
        # Where the two sides take gradients of different tensors, both go back to the parameter's own order.
        return replace(group, plain=group.plain and group.parameters in alike)

    return [_share_biases([formed(g) for g in groups], uses) for groups, uses in sides]


def _saving(use: Use, readouts: int) -> float:
    """Return how many fewer numbers per sample the compact form keeps than the gradient has."""
    short = use.compact_cost(readouts)
    assert short is not None
    return use.written_out_cost(readouts).floats - short.floats


def merge(seen: Sequence[SeenUse]) -> Use | None:
    """Return all uses of a parameter as one use where their kinds allow it."""
    uses = [s.use for s in seen]
    merged = uses[0].merge(uses) if len(set(map(type, uses))) == 1 else None
    return Tied.of(uses) if merged is None else merged


def layer_of(name: str) -> str:
    """Return the layer of a parameter: the module that holds it, or its own name at the top."""
    module = name.split(".parametrizations.")[0]
    if module != name:
        return module
    return name.rpartition(".")[0] or name
