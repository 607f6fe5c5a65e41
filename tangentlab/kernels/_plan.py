"""The plan: how a problem is solved. A plan is a value; another way to solve the problem is another plan."""

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TypeVar

from tangentlab._errors import TangentError
from tangentlab._memory import available, parse_bytes
from tangentlab.kernels._agreement import check_numbers
from tangentlab.kernels._calibration import rates
from tangentlab.kernels._contract import EXPANDED, EXPANDED_ROWS, TILE
from tangentlab.kernels._cost import Work
from tangentlab.kernels._factorize import ControlFlowChanged, Factorizer
from tangentlab.kernels._findings import Findings
from tangentlab.kernels._groups import Group, choose_forms, make_groups
from tangentlab.kernels._half import refuse_lost_digits
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._memory import Budget, batch_of
from tangentlab.kernels._network import Network
from tangentlab.kernels._padding_counts import refuse_counted_padding
from tangentlab.kernels._probe import probe
from tangentlab.kernels._problem import Problem

_SHARE = 0.6
"""Share of the free memory that a computation takes if the user sets no budget."""
_FACTORS = 0.6
"""Share of the memory that factors may take before compact forms are preferred at any cost."""
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Side:
    """One of the two sets of samples, and how the network uses its parameters on it.

    Attributes:
        samples: The samples.
        findings: What the probe found.
        groups: The parameters, each in its form.
    """

    samples: Samples
    findings: Findings
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Plan:
    """A problem, and the form that the gradients of each parameter take.

    Attributes:
        problem: What is solved.
        memory: Bytes for the result and everything on the way to it.
        sides: The samples of the rows, and those of the columns if they are others.
    """

    problem: Problem
    memory: int
    sides: tuple[Side, ...]

    @property
    def network(self) -> Network:
        """The network."""
        return self.problem.network

    @property
    def work(self) -> Work:
        """What factors are for."""
        return self.problem.work

    @property
    def left(self) -> Side:
        """The samples of the rows."""
        return self.sides[0]

    @property
    def right(self) -> Side:
        """The samples of the columns."""
        return self.sides[-1]

    @property
    def layers(self) -> list[str]:
        """The layers that are kept apart; the empty name stands for all of them."""
        return list(dict.fromkeys(g.layer for g in self.left.groups)) if self.work.by_layer else [""]

    def falling_back(self) -> "Plan":
        """Return the plan without rules: every parameter by plain differentiation."""
        reason = dict.fromkeys(self.network.parameters, "changing control flow")
        for side in self.sides:
            side.findings.first.clear()
        findings = [replace(s.findings, fallback=reason, unused=frozenset()) for s in self.sides]
        return _arrange(self.problem, self.memory, findings)

    def solving(self, problem: Problem) -> "Plan":
        """Return the plan of another problem with the same network and samples."""
        return _arrange(problem, self.memory, [side.findings for side in self.sides])

    def batched(self, batch_size: int) -> "Plan":
        """Return the plan with a fixed number of samples per forward pass."""
        options = replace(self.problem.options, batch_size=batch_size)
        return replace(self, problem=replace(self.problem, options=options))

    def group_bytes(self, group: Group) -> int:
        """Return the memory that one group's factor of one sample takes."""
        readouts = self.network.readout.size
        if group.form == "compact" and group.weight_use is not None:
            cost = group.weight_use.compact_cost(readouts)
            assert cost is not None
            floats = cost.floats
        else:
            floats = readouts * group.size
        return int(floats * self.network.dtype.itemsize)

    def sample_bytes(self, side: Side) -> int:
        """Return the memory that the factors of one sample take."""
        return sum(self.group_bytes(group) for group in side.groups)

    def budget(self, result: int, panel: int | None = None) -> Budget:
        """Return how the memory is divided.

        Args:
            result: Bytes that the result takes.
            panel: Samples that are contracted at a time with as many others; None for all.
        """
        size, readouts = self.network.dtype.itemsize, self.network.readout.size
        sample = max(self.sample_bytes(side) for side in self.sides)
        activations = max(side.findings.activation_bytes for side in self.sides)
        # A batch holds its activations, their gradients for every readout (and for the comparison with its samples
        # alone, where it takes place), and its factors before they are stored.
        passes = 1 + readouts + any(not side.findings.trusted for side in self.sides)
        entries = (self.work.rows * self.work.columns if panel is None else panel**2) * readouts**2
        return Budget(
            self.memory,
            result,
            sample,
            batch_sample=activations * passes + 2 * sample,
            tile=max(4 * min(TILE, entries) * self.network.kernel_dtype.itemsize, self._expansion(entries)),
            check=check_numbers(self.network.parameters) * size,
            batch_size=self.problem.options.batch_size,
        )

    def _expansion(self, entries: int) -> int:
        """Return the memory that writing gradients out late takes: pieces of two sides, and sums in float64."""
        late = [g.size for g in self.left.groups if g.form == "compact" and g.weight_use and g.weight_use.positions > 1]
        rows = (self.work.rows + self.work.columns) * self.network.readout.size
        pieces = min(2 * EXPANDED, rows * max(late, default=0))
        return pieces * self.network.kernel_dtype.itemsize + 8 * min(entries, EXPANDED_ROWS**2) if late else 0

    def portions(self, capacity: int) -> "list[Plan] | None":
        """Return plans for some of the groups each, whose factors of all samples fit into ``capacity`` bytes.

        Together they give the kernel, at one forward and backward pass over all samples each. None if there is a group
        whose factors alone do not fit.
        """
        sizes = [max(map(self.group_bytes, pair)) for pair in zip(*(side.groups for side in self.sides), strict=True)]
        room = capacity / self.work.samples
        if max(sizes) > room:
            return None
        # As few portions as fit, and about equally large ones.
        target = sum(sizes) / max(1, math.ceil(sum(sizes) / room))
        numbers: list[list[int]] = [[]]
        held = 0
        for number, size in enumerate(sizes):
            if numbers[-1] and (held + size > room or held + size / 2 > target):
                numbers.append([])
                held = 0
            numbers[-1].append(number)
            held += size
        return [self._only(chosen) for chosen in numbers]

    def _only(self, numbers: Sequence[int]) -> "Plan":
        sides = (replace(side, groups=tuple(side.groups[n] for n in numbers)) for side in self.sides)
        return replace(self, sides=tuple(sides))

    def factorizer(self, side: Side, budget: Budget) -> Factorizer:
        """Return the factorization of one side."""
        batch = min(budget.batch, len(side.samples))
        return Factorizer(self.network, side.findings, side.groups, batch, self.work.by_layer)


def make_plan(problem: Problem, ahead: bool = False) -> Plan:
    """Probe the network on a few samples and choose the form of each parameter's gradients.

    Args:
        problem: What is to be solved.
        ahead: Whether the factors of all samples are wanted next: then the probe begins with them.

    Raises:
        TangentError: The samples influence each other, the forward pass is random or changes the model.
    """
    chosen, network = problem.options.memory_budget, problem.network
    memory = int(_SHARE * available(network.device)) if chosen is None else parse_bytes(chosen)

    def room(activations: int) -> int:
        """Return how many samples may be in the first batch."""
        work, readouts = problem.work, network.readout.size
        result = math.prod(network.readout.shape(work.rows, work.columns)) * network.kernel_dtype.itemsize
        per_sample = activations * (2 + readouts) * len(problem.samples)
        return batch_of(memory - result, per_sample, problem.options.batch_size) if ahead else 0

    findings = []
    for samples in problem.samples:
        findings.append(probe(network, samples, room))
        network.refuse_targets(samples)
        refuse_counted_padding(network, samples)
        refuse_lost_digits(network, samples, findings[-1].probed)
    return _arrange(problem, memory, findings)


def run(plan: Plan, compute: Callable[[Plan], _Result]) -> tuple[_Result, Plan]:
    """Compute by a plan, or by its fallback if the model's control flow changes on the way.

    Returns:
        The result, and the plan that gave it.
    """
    try:
        return compute(plan), plan
    except ControlFlowChanged:
        warnings.warn(
            "The rules do not describe what this model does with these samples (its control flow, or the order of "
            "rows, depends on their content): every parameter goes through the exact, slow fallback.",
            stacklevel=_levels_to_user(),
        )
        plan = plan.falling_back()
        return compute(plan), plan


def _levels_to_user() -> int:
    """Return how many calls lie between this function's caller and the first one outside of the package."""
    level, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "tangentlab":
        level, frame = level + 1, frame.f_back
    return level + 1


def _arrange(problem: Problem, memory: int, findings: Sequence[Findings]) -> Plan:
    # What needs the fallback on one side needs it on both, so that the two have the same factors.
    shared = {name: reason for f in findings for name, reason in f.fallback.items()}
    unused = frozenset.intersection(*(f.unused for f in findings))
    shared.update(dict.fromkeys(frozenset.union(*(f.unused for f in findings)) - unused, "used on one side only"))
    found = [f.without(shared, unused) for f in findings]
    groups = [(make_groups(f, problem.network.parameters), f.uses) for f in found]
    work, network = problem.work, problem.network
    room = math.inf
    if work.kind in ("gram", "operator"):  # where all factors are wanted at once
        room = _FACTORS * memory / (network.dtype.itemsize * work.samples)
    forms = choose_forms(groups, network.readout.size, work, room, rates(network.device, network.dtype))
    _refuse_different(forms)
    sides = zip(problem.samples, found, map(tuple, forms), strict=True)
    return Plan(problem, memory, tuple(Side(*side) for side in sides))


def _refuse_different(forms: Sequence[Sequence[Group]]) -> None:
    """Refuse two sets of samples on which a model uses different parameters: they have different factors."""
    kept = [[(g.parameters, g.form, g.bias) for g in groups] for groups in forms]
    for one, two in zip_longest(kept[0], kept[-1]):
        if one != two:
            raise TangentError(
                f"The model uses {(one or two)[0][0]} differently on x1 and on x2.",
                "The two sets of samples need the same factors.",
                "Pass samples of one shape, or concatenate x1 and x2 and cut the kernel.",
            )
