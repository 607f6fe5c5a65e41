"""The engine room behind :func:`ntk` and :class:`NTKOperator`: probe, plan, memory, factors."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._memory import available, parse_bytes
from tangentlab._sums import inner
from tangentlab.kernels import _cost as cost
from tangentlab.kernels._contract import TILE
from tangentlab.kernels._factorize import ControlFlowChanged, Factorizer, Factors
from tangentlab.kernels._fallback import gradient
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._network import Network, ParametersLike
from tangentlab.kernels._plan import Group, choose_forms, make_groups
from tangentlab.kernels._probe import Findings, probe, probe_numbers
from tangentlab.kernels._readout import ReadoutLike

_SHARE = 0.6
"""Share of the free memory that a computation takes if the user sets no budget."""
_CHECK = (1e-8, 2e-3, 0.1)
"""Relative disagreement with plain differentiation that is still rounding in double, single and half precision."""


@dataclass
class Side:
    """One of the two sets of samples, with what the probe found on it."""

    samples: Samples
    findings: Findings
    groups: list[Group]


class Engine:
    """Everything known about a kernel before it is computed.

    Args:
        model: The module.
        x1: Samples of the rows.
        x2: Samples of the columns; None for the same.
        kind: What factors are for: "gram", "operator", "diagonal" or "sketch".
        features: Length of a sketch.
        by_layer: Whether layers are kept apart.
        others: As for :func:`tangentlab.ntk`.
    """

    def __init__(
        self,
        model: nn.Module,
        x1: Any,
        x2: Any = None,
        *,
        kind: str,
        readout: ReadoutLike = "full",
        parameters: ParametersLike = None,
        output: Callable[[Any], Tensor] | None = None,
        input: Callable[[Any], Any] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        batch_size: int | None = None,
        memory_budget: int | float | str | None = None,
        by_layer: bool = False,
        features: int = 0,
    ) -> None:
        if batch_size is not None:
            if not isinstance(batch_size, Integral) or isinstance(batch_size, bool) or batch_size < 1:
                raise TangentError(f"batch_size is {batch_size!r}.", "", "pass a positive int, or None for automatic.")
            batch_size = int(batch_size)
        self.network = Network(model, readout, parameters=parameters, output=output, dtype=dtype, device=device)
        self.batch_size: int | None = batch_size
        self.by_layer = by_layer
        options: dict[str, Any] = {"device": self.network.device, "dtype": self.network.cast, "input": input}
        options["model"] = model
        self.symmetric = x2 is None or x2 is x1
        samples = [Samples(x1, name="x1", **options)]
        if not self.symmetric:
            samples.append(Samples(x2, name="x2", **options))
        self.total_memory = (
            int(_SHARE * available(self.network.device)) if memory_budget is None else parse_bytes(memory_budget)
        )
        findings = [probe(self.network, s) for s in samples]
        sizes = len(samples[0]), len(samples[-1])
        self.work = cost.Work(kind, *sizes, self.symmetric, features)  # type: ignore[arg-type]
        self._plan(samples, findings)

    def _plan(self, samples: list[Samples], findings: list[Findings]) -> None:
        # What needs the fallback on one side needs it on both, so that the two have the same factors.
        shared = {name: reason for f in findings for name, reason in f.fallback.items()}
        unused = frozenset.intersection(*(f.unused for f in findings))
        shared.update(dict.fromkeys(frozenset.union(*(f.unused for f in findings)) - unused, "used on one side only"))
        parameters = self.network.parameters
        found = []
        for f in findings:
            f = replace(f, fallback=shared, unused=unused)
            f.uses = [s for s in f.uses if not f.skipped.issuperset(s.source.parameters)]
            found.append(f)
        plans = [(make_groups(f, parameters), f.uses) for f in found]
        forms = choose_forms(plans, self.network.readout.size, self.work)
        _refuse_different(forms)
        self.sides = [Side(*side) for side in zip(samples, found, forms, strict=True)]

    def fall_back(self) -> None:
        """Give up on rules: the model's control flow depends on the data."""
        reason = dict.fromkeys(self.network.parameters, "changing control flow")
        findings = [replace(s.findings, fallback=reason, unused=frozenset()) for s in self.sides]
        self._plan([s.samples for s in self.sides], findings)

    def plan_for(self, samples: int) -> None:
        """Choose forms as if there were that many samples, to learn from a few what many will cost."""
        self.work = cost.Work("gram", samples, samples, True)
        self._plan([s.samples for s in self.sides], [s.findings for s in self.sides])

    @property
    def left(self) -> Side:
        return self.sides[0]

    @property
    def right(self) -> Side:
        return self.sides[-1]

    def sample_bytes(self, side: Side) -> int:
        """Memory that the factors of one sample take."""
        return sum(self.group_bytes(group) for group in side.groups)

    def group_bytes(self, group: Group) -> int:
        """Memory that one group's factor of one sample takes."""
        readouts, size = self.network.readout.size, torch.empty((), dtype=self.network.dtype).element_size()
        short = cost.compact(group.weight_use, readouts) if group.weight_use is not None else None
        if group.form == "compact" and short is not None:
            return int(short.floats * size)
        return readouts * sum(self.network.parameters[n].numel() for n in group.parameters) * size

    def budget(self, result: int, panel: int | None = None) -> Budget:
        """How memory is shared out.

        Args:
            result: Bytes that the result takes.
            panel: Samples that are contracted at a time with as many others; None for all.
        """
        size = torch.empty((), dtype=self.network.dtype).element_size()
        readouts = self.network.readout.size
        sample = max(self.sample_bytes(side) for side in self.sides)
        activations = max(side.findings.activation_bytes for side in self.sides)
        # A batch holds its activations, their gradients for every readout (and for the comparison with its samples
        # alone, where it takes place), and its factors before they are stored.
        passes = 1 + readouts + any(not side.findings.trusted for side in self.sides)
        batch_sample = activations * passes + 2 * sample
        entries = (self.work.rows * self.work.columns if panel is None else panel**2) * readouts**2
        tile = 4 * min(TILE, entries) * size
        check = probe_numbers(self.network.parameters) * size
        return Budget(self.total_memory, result, sample, batch_sample, tile, check, self.batch_size)

    def factorizer(self, side: Side, budget: Budget) -> Factorizer:
        """What makes the factors of one side."""
        batch = min(budget.batch, len(side.samples))
        return Factorizer(self.network, side.findings, side.groups, batch, self.by_layer)

    def run(self, compute: Callable[[], Any]) -> Any:
        """Compute, and once more by the fallback if the model's control flow changes on the way."""
        try:
            return compute()
        except ControlFlowChanged:
            warnings.warn(
                "the rules do not describe what this model does with these samples (its control flow, or the order of "
                "rows, depends on their content): every parameter goes through the exact, slow fallback.",
                stacklevel=4,
            )
            self.fall_back()
            return compute()

    def verify(self, one: Factors, rows: range, two: Factors, columns: range) -> None:
        """Compare the kernel of a few samples with plain automatic differentiation.

        Args:
            one: Factors of some samples of x1.
            rows: Which.
            two: Factors of some samples of x2, or of x1 again.
            columns: Which.

        Raises:
            ControlFlowChanged: They differ by more than rounding; :meth:`run` then takes the fallback.
        """
        if all(group.form == "fallback" for group in self.left.groups):
            return
        network = self.network
        weights = torch.linspace(0.5, 1.5, one.readouts, dtype=network.dtype, device=network.device)
        names = {name: group.layer for group in self.left.groups for name in group.parameters}
        parameters = [network.parameters[name] for name in names]

        def weighted(sample: Any) -> Tensor:
            values = network.values(sample, 1)
            return values @ weights.to(values)

        def some(samples: Samples, chosen: range) -> dict[int, dict[str, Tensor]]:
            ends = sorted({0, len(chosen) - 1})
            with torch.enable_grad():
                found = {e: gradient(weighted(samples.batch([chosen[e]])).squeeze(), parameters) for e in ends}
            return {end: dict(zip(names, gradients, strict=True)) for end, gradients in found.items()}

        left = some(self.left.samples, rows)
        right = left if one is two else some(self.right.samples, columns)
        lefts, rights = (side.layers() if self.by_layer else {"": side} for side in (one, two))
        tolerance, smallest = network.tolerance(*_CHECK), 0.0
        for layer in ["", *lefts] if self.by_layer else [""]:  # the whole first: its size is what a layer's is held to
            own = [name for name in names if layer in ("", names[name])]
            sizes = [max(_inner(own, j, j) for j in side.values()) for side in (left, right)]
            bound = tolerance * (sizes[0] * sizes[1]) ** 0.5 + smallest
            for p, plain in left.items():
                for q, other in right.items():
                    block = weights.new_zeros(one.readouts, two.readouts)
                    lefts.get(layer, one)[p : p + 1].add_gram(rights.get(layer, two)[q : q + 1], block)
                    found = (weights.double() @ block.double() @ weights.double()).item()
                    if not abs(found - _inner(own, plain, other)) <= bound:
                        raise ControlFlowChanged
            smallest = smallest or network.rounding * bound / tolerance


def _inner(names: list[str], one: dict[str, Tensor], two: dict[str, Tensor]) -> float:
    return sum(float(inner(one[name], two[name])) for name in names)


def _refuse_different(forms: list[list[Group]]) -> None:
    """Two sets of samples on which a model uses other parameters cannot share factors."""
    kept = [[(g.parameters, g.form, g.bias) for g in groups] for groups in forms]
    for one, two in zip_longest(kept[0], kept[-1]):
        if one != two:
            raise TangentError(
                f"the model uses {(one or two)[0][0]} differently on x1 and on x2.",
                "the two sets of samples need the same factors.",
                "pass samples of one shape, or concatenate x1 and x2 and cut the kernel.",
            )
