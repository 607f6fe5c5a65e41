"""Recording: seeing every operation that consumes a parameter, in modules and functional code alike.

A :class:`Recorder` is a ``TorchFunctionMode``: each torch operation of the forward pass goes through it. Operations on
parameters alone (a transpose, a scale, weight normalization) make *sources*, stand-ins for the parameters they are made
of. An operation that brings a source together with the batch *uses* it: a rule says how the gradient with respect to
the output becomes one with respect to the source. Modules are never looked at, so functional code, attention
and bare parameters are seen like anything else.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from tangentlab.kernels import _composites as composites
from tangentlab.kernels._dataflow import Tape, full_name
from tangentlab.kernels._isometries import isometry_scale
from tangentlab.kernels._layout import Layout
from tangentlab.kernels._network import Recording
from tangentlab.kernels._norm_gradients import correct_gradient
from tangentlab.kernels._row_moves import tensors
from tangentlab.kernels.rules import RULES, Call, Use

Place = Layout | torch.Size | None
"""Where an output has its samples: a layout; its shape, if it has no sample axis; None if that is not known."""


@dataclass(frozen=True)
class ParameterSource:
    """A tensor made of parameters alone.

    Attributes:
        key: Equal keys mean the same function of the same parameters.
        parameters: Names of the parameters it is made of.
        scale: s if the tensor is s times a reordering of one whole parameter, so that gradients with respect to the
            two have inner products in the ratio s^2; None if it is a general function of them.
        tensor: The value, with its graph.
        version: The value's version, which a change in place moves on.
        base: What the tensor is the transpose of, if it is no more than that.
    """

    key: tuple[Any, ...]
    parameters: tuple[str, ...]
    scale: float | None
    tensor: Tensor = field(compare=False, repr=False)
    version: int = field(compare=False)
    base: "ParameterSource | None" = field(default=None, compare=False, repr=False)


@dataclass
class SeenUse:
    """One use of one source by one operation.

    Attributes:
        source: What is used.
        use: How.
        edge: Where the gradient with respect to the operation's output arrives; it keeps the graph alive.
        output_shape: The output's shape.
        layout: Where the output has its samples.
        operation: The operation's name.
        number: The operation's number in the pass.
    """

    source: ParameterSource
    use: Use
    edge: GradientEdge | None
    output_shape: torch.Size
    layout: Layout
    operation: str
    number: int

    def outline(self) -> "SeenUse":
        """Return what it says of any batch, without the numbers and the graph of this one."""
        return replace(self, use=self.use.outline(), edge=None)

    def __getitem__(self, rows: slice) -> "SeenUse":
        return replace(self, use=self.use[rows], edge=None)


class Recorder(TorchFunctionMode, Recording):
    """A recorder of the uses of parameters during one forward pass.

    Args:
        parameters: The tracked parameters by name.
        batch: Number of samples in the pass.
        places: For each operation on sources, in order, where its output has its samples.
        skip: Names of parameters whose uses need not be kept (they go through the fallback).
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        batch: int,
        places: Iterator[tuple[str, Place]],
        skip: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.batch, self.places, self.skip = batch, places, skip
        self.sources = {id(p): ParameterSource((name,), (name,), 1.0, p, p._version) for name, p in parameters.items()}
        self.uses: list[SeenUse] = []
        self.unruled: dict[str, str] = {}
        """Parameters that an operation without a rule consumed, with that operation's name."""
        self.diverged = False
        """Whether the operations on sources were not those that ``places`` was made for."""
        self.tape = Tape()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        parts = composites.parts(func, args)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        result = func(*args, **kwargs)
        self.tape.note(func, result)
        correct_gradient(func, result)
        found = [self.sources[id(t)] for t in tensors((args, kwargs)) if id(t) in self.sources]
        if found and not self.diverged:
            result = apart(func, args, result)
            outputs = [t for t in tensors(result) if differentiable(t)]
            if outputs:
                self._see(func, args, kwargs, found, outputs)
        return result

    def _see(
        self,
        func: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        found: list[ParameterSource],
        outputs: list[Tensor],
    ) -> None:
        name = full_name(func)
        expected, place = self._next_place()
        if expected != name or not _fits(place, outputs, self.batch):
            self.diverged = True
            return
        changed = [s for s in found if s.tensor._version != s.version and all(s.tensor is not t for t in outputs)]
        for source in changed:  # in place, by an operation that gave nothing back (an assignment, a view)
            self.unruled.update(dict.fromkeys(source.parameters, "changed in place"))
        if isinstance(place, torch.Size):
            for index, output in enumerate(outputs):
                self._derive(name, args, kwargs, found, output, index)
            return
        uses = None
        # Rules are for real numbers: a complex product has the conjugate in its gradient.
        real = not any(t.is_complex() for t in (*outputs, *tensors((args, kwargs))))
        if isinstance(place, Layout) and len(outputs) == 1 and func in RULES and real:
            with suppress(RuntimeError, TypeError, ValueError, IndexError):  # not a case that the rule knows
                uses = RULES[func](Call(outputs[0], place, self.batch, self.sources), *args, **kwargs)
        known = {id(tensor) for tensor, _ in uses} if uses else set()
        for source in found:
            if id(source.tensor) not in known:
                self.unruled.update(dict.fromkeys(source.parameters, name))
        number = len(self.uses)
        for tensor, use in uses or ():
            seen = self.sources.get(id(tensor))
            if seen is not None and isinstance(place, Layout) and not self.skip.issuperset(seen.parameters):
                edge = get_gradient_edge(outputs[0])
                # A use of W^T is one of W, so that a weight and its transpose have uses of one tensor.
                other = use.of_transpose() if seen.base is not None else None
                if seen.base is not None and other is not None:
                    seen, use = seen.base, other
                self.uses.append(SeenUse(seen, use, edge, outputs[0].shape, place, name, number))

    def _next_place(self) -> tuple[str, Place]:
        """Return the name of the operation that is expected now, and where its output has its samples."""
        return next(self.places, ("", None))

    def _derive(
        self, name: str, args: Any, kwargs: dict[str, Any], found: list[ParameterSource], output: Tensor, index: int
    ) -> None:
        if id(output) in self.sources and not name.endswith("_"):
            return  # the tensor itself, as contiguous() gives it
        parents = tuple(dict.fromkeys(parameter for source in found for parameter in source.parameters))
        factor = isometry_scale(name, args, kwargs, found[0].tensor, output) if len(found) == 1 else None
        if factor is None or found[0].scale is None:
            key: tuple[Any, ...] = ("derived", len(self.sources), name, index)
            source = ParameterSource(key, parents, None, output, output._version)
        else:
            constants = repr([None if isinstance(a, Tensor) else a for a in args]) + repr(kwargs)
            key = (found[0].key, name, constants, tuple(output.shape), factor)
            scale, version = found[0].scale * factor, output._version
            if not _is_transpose(found[0].tensor, output):
                source = ParameterSource(key, parents, scale, output, version)
            elif found[0].base is not None:  # transposed twice
                source = replace(found[0].base, tensor=output, version=version)
            else:
                source = ParameterSource(key, parents, scale, output, version, found[0])
        self.sources[id(output)] = source


def apart(func: Callable[..., Any], args: Any, result: Any) -> Any:
    """Return a copy of an output that is a view, so that a later operation in place leaves the graph alone.

    (Changing a view in place rewrites the history of its base, and the edge that a recording holds would lead nowhere.)
    """
    view = isinstance(result, Tensor) and result.requires_grad and result._is_view()
    return result.clone() if view and func in RULES and all(result is not a for a in args) else result


def _is_transpose(tensor: Tensor, output: Tensor) -> bool:
    """Return whether a tensor is the transpose of a matrix: a view with its axes exchanged."""
    return (
        tensor.ndim == output.ndim == 2
        and not tensor.is_complex()
        and output.data_ptr() == tensor.data_ptr()
        and output.shape == tensor.shape[::-1]
        and output.stride() == tensor.stride()[::-1]
    )


def _fits(place: Place, outputs: list[Tensor], batch: int) -> bool:
    """Return whether an output can have its samples there: a mask may select no rows at the probe, and some later."""
    if isinstance(place, Layout):
        return place.fits(outputs[0], batch)
    return place is None or outputs[0].shape == place


def differentiable(tensor: Tensor) -> bool:
    """Return whether a tensor has a graph; a view of a parameter made under no_grad() claims one and has none."""
    return tensor.requires_grad and not (tensor.grad_fn is None and tensor._is_view())
