"""Which forward passes treat every sample alike, whatever its content.

The probe learns from three samples where each sample's rows lie. That holds for a batch of other samples if

- the batch goes through the same operations and reads the same values off its tensors (``if mask.all()``, ``.item()``);
- none of these operations can move rows from sample to sample, by what is in them or by their places in the batch, or
  carry a result over several samples (for instance a maximum over the batch) back to single ones.

The first is compared for every batch (:class:`Tape`), the second is found out once, in the probe, by following the
samples' content (:class:`DataFlow`). Any other batch is compared with the definition: see
:mod:`tangentlab.kernels._placement`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import resolve_name

from tangentlab.kernels._row_moves import INDEXING, memory, moves_rows, tensors

READINGS = frozenset("__bool__ item __int__ __float__ __index__ __complex__ tolist equal allclose is_nonzero".split())
ESCAPES = frozenset("numpy __array__ __dlpack__ data_ptr storage untyped_storage __reduce_ex__ __deepcopy__".split())


@lru_cache(4096)
def plain_name(name: str) -> str:
    """Return an operation's name without its owner, without the marks of in-place, reflected and property forms."""
    last = name.removesuffix(".__get__").rpartition(".")[2]
    if last in INDEXING:
        return last
    if last.startswith("__"):
        known = "add|sub|mul|matmul|truediv|floordiv|mod|pow|neg|abs|eq|ne|lt|le|gt|ge|and|or|xor|invert"
        last = re.sub(rf"^__(r|i)?({known})__$", r"\2", last)
        return {"truediv": "div"}.get(last, last)
    return last.removesuffix("_") if not last.startswith("_") and last != "requires_grad_" else last


@lru_cache(4096)
def full_name(func: Callable[..., Any]) -> str:
    """Return an operation's name with its owner."""
    return resolve_name(func) or getattr(func, "__name__", repr(func))


@dataclass
class Tape:
    """What a forward pass did: its operations in order, and the values that it read off tensors."""

    operations: list[Any] = field(default_factory=list)
    readings: list[Any] = field(default_factory=list)

    def note(self, func: Callable[..., Any], result: Any) -> None:
        """Record an operation."""
        if isinstance(result, Tensor) or next(tensors(result), None) is not None:
            self.operations.append(func)
            return
        name = plain_name(full_name(func))
        if name in READINGS:
            self.readings.append(result)
        elif name in ESCAPES:
            self.readings.append(object())  # equal to nothing: what becomes of the values is not seen
        elif name == "__setitem__":
            self.operations.append(func)


class DataFlow:
    """The tensors of a forward pass that hold content of the samples.

    A tensor is free of content, or holds rows of single samples, or is *common*: made of content but without a sample
    axis, so of several samples. Tensors that share memory share that.
    """

    def __init__(self) -> None:
        self.seen: set[int | None] = set()
        self.common: set[int | None] = set()
        self.made: set[int | None] = set()
        self.moves = False
        """Whether an operation was seen that may place samples by their content."""

    def begin(self, inputs: Iterable[Tensor]) -> None:
        """Add the samples' tensors."""
        self.seen |= {memory(t) for t in inputs}

    def touches(self, given: Iterable[Tensor]) -> bool:
        """Return whether an operand holds content of the samples."""
        return any(memory(t) in self.seen for t in given)

    def follow(
        self, func: Callable[..., Any], args: Any, kwargs: Any, outputs: Sequence[Tensor], before: "Step | None"
    ) -> None:
        """Follow the content through one operation.

        Args:
            func: The operation.
            args: Its arguments.
            kwargs: Its further arguments.
            outputs: What it gave.
            before: The same operation in a run with another number of samples; None if it is not known which.
        """
        given = list(tensors((args, kwargs)))
        known = {memory(t) for t in given}
        made = {memory(t) for t in outputs}
        if before is None or None in known | made or self._of_hidden_origin(given, before):
            self.moves = True
            return
        self.made |= made
        if not known & self.seen:
            return
        name = plain_name(full_name(func))
        if name == "__setitem__":
            outputs = given[:1]
            shapes = before.inputs[:1]
        else:
            shapes = [t.shape for t in before.outputs]
        by_sample = [now.shape != then for now, then in zip(outputs, shapes, strict=False)]
        moves = bool(outputs) and moves_rows(name, full_name(func), args, kwargs, before.inputs, self.seen)
        # A maximum over the batch, say, that comes back to single samples.
        self.moves = self.moves or moves or (any(by_sample) and bool(known & self.common))
        for output, own in zip(outputs, by_sample, strict=False):
            self.seen.add(memory(output))
            if not own:
                self.common.add(memory(output))

    def _of_hidden_origin(self, given: Sequence[Tensor], before: "Step") -> bool:
        """Return whether an operand has a sample axis and was made by no operation that was seen."""
        pairs = zip(given, before.inputs, strict=True)
        return any(
            t.shape != then and (held := memory(t)) not in self.seen and held not in self.made for t, then in pairs
        )


@dataclass(frozen=True)
class Step:
    """One operation of a probe: its name, its operands' shapes and its results."""

    name: str
    inputs: list[torch.Size]
    outputs: list[Tensor]


@dataclass
class HiddenCode:
    """Code in a graph that no recorder sees (autograd functions, scripts).

    Attributes:
        found: Whether there is any.
        consumed: The parameters that go into it.
        leaves: The ``id`` of every tensor without a graph of its own that the readouts depend on.
    """

    found: bool = False
    consumed: set[str] = field(default_factory=set)
    leaves: set[int] = field(default_factory=set)


def hidden_consumers(values: Tensor, known: dict[Any, tuple[str, ...]]) -> HiddenCode:
    """Return the code in a graph that no recorder sees.

    Args:
        values: The readouts, with their graph.
        known: From a node of the graph to the parameters that its tensor is made of.
    """
    result, seen, stack = HiddenCode(), set(), [values.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        hidden = isinstance(node, torch.autograd.function.BackwardCFunction) or "Graph" in node.name()
        result.found |= hidden
        if hasattr(node, "variable"):
            result.leaves.add(id(node.variable))
        for following, _ in node.next_functions:
            if hidden:
                result.consumed.update(known.get(following, ()))
            stack.append(following)
    return result
