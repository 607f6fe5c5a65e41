"""Recording: seeing every operation that consumes a parameter, whoever wrote the forward pass.

A :class:`Recorder` is a ``TorchFunctionMode``: each torch operation of the forward pass goes through it. Operations on
parameters alone (a transpose, a scale, weight normalisation) make *sources*, stand-ins for the parameters they are made
of. An operation that brings a source together with the batch is a *meeting*: there a rule says how the gradient with
respect to the output becomes one with respect to the source. Modules are never looked at, so functional code, attention
and bare parameters are seen like anything else.
"""

import numbers
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.overrides import TorchFunctionMode

from tangentlab.kernels import _composites as composites
from tangentlab.kernels._chance import Chance
from tangentlab.kernels._inputs import tensors as inputs_of
from tangentlab.kernels._layout import Layout
from tangentlab.kernels._network import Recording
from tangentlab.kernels._sound import put_right
from tangentlab.kernels._trust import Conduct, Content, Step, full_name, plain_name, tensors
from tangentlab.kernels.rules import RULES, Meeting
from tangentlab.kernels.rules._use import Use

Place = Layout | torch.Size | None
"""Where an output has its samples: a layout; its shape, if it has no sample axis; None if that is not known."""
_SHAPE_ONLY = frozenset("type_as to expand_as view_as reshape_as broadcast_to".split())
"""Operations that take from their second operand how a result looks, and nothing of what is in it."""


@dataclass(frozen=True)
class Source:
    """A tensor made of parameters alone.

    Attributes:
        key: Equal keys mean the same function of the same parameters.
        parameters: Names of the parameters it is made of.
        scale: s if the tensor is s times a reordering of one whole parameter, so that gradients with respect to the
            two have inner products in the ratio s^2; None if it is a general function of them.
        tensor: The value, with its graph.
        version: The value's version, which a change in place moves on.
    """

    key: tuple[Any, ...]
    parameters: tuple[str, ...]
    scale: float | None
    tensor: Tensor = field(compare=False, repr=False)
    version: int = field(compare=False)


@dataclass
class SeenUse:
    """One use of one source at one meeting."""

    source: Source
    use: Use
    edge: GradientEdge
    output_shape: torch.Size
    layout: Layout
    operation: str


class Recorder(TorchFunctionMode, Recording):
    """Records the uses of parameters during one forward pass.

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
        self.sources = {id(p): Source((name,), (name,), 1.0, p, p._version) for name, p in parameters.items()}
        self.uses: list[SeenUse] = []
        self.unruled: dict[str, str] = {}
        """Parameters that an operation without a rule consumed, with that operation's name."""
        self.diverged = False
        """Whether the operations on sources were not those that ``places`` was made for."""
        self.conduct = Conduct()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        parts = composites.parts(func, args)
        if parts is not None:
            with self:
                return parts(*args, **kwargs)
        result = func(*args, **kwargs)
        self.conduct.note(func, result)
        put_right(func, result)
        found = [self.sources[id(t)] for t in tensors((args, kwargs)) if id(t) in self.sources]
        if found and not self.diverged:
            result = _apart(func, args, result)
            outputs = [t for t in tensors(result) if _differentiable(t)]
            if outputs:
                self._see(func, args, kwargs, found, outputs)
        return result

    def _see(
        self,
        func: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        found: list[Source],
        outputs: list[Tensor],
    ) -> None:
        name = full_name(func)
        expected, place = next(self.places, ("", None))
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
        if isinstance(place, Layout) and len(outputs) == 1 and func in RULES:
            with suppress(RuntimeError, TypeError, ValueError, IndexError):  # not a case that the rule knows
                uses = RULES[func](Meeting(outputs[0], place, self.batch, self.sources), *args, **kwargs)
        known = {id(tensor) for tensor, _ in uses} if uses else set()
        for source in found:
            if id(source.tensor) not in known:
                self.unruled.update(dict.fromkeys(source.parameters, name))
        for tensor, use in uses or ():
            seen = self.sources.get(id(tensor))
            if seen is not None and isinstance(place, Layout) and not self.skip.issuperset(seen.parameters):
                self.uses.append(SeenUse(seen, use, get_gradient_edge(outputs[0]), outputs[0].shape, place, name))

    def _derive(
        self, name: str, args: Any, kwargs: dict[str, Any], found: list[Source], output: Tensor, index: int
    ) -> None:
        if id(output) in self.sources and not name.endswith("_"):
            return  # the tensor itself, as contiguous() gives it
        parents = tuple(dict.fromkeys(parameter for source in found for parameter in source.parameters))
        factor = _isometry(name, args, kwargs, found, output)
        if factor is None or found[0].scale is None:
            key: tuple[Any, ...] = ("derived", len(self.sources), name, index)
            source = Source(key, parents, None, output, output._version)
        else:
            constants = repr([None if isinstance(a, Tensor) else a for a in args]) + repr(kwargs)
            key = (found[0].key, name, constants, tuple(output.shape), factor)
            source = Source(key, parents, found[0].scale * factor, output, output._version)
        self.sources[id(output)] = source


_REORDERINGS = {
    f"torch.{owner}{name}"
    for owner in ("", "Tensor.")
    for name in (
        *(
            "t",
            "transpose",
            "permute",
            "movedim",
            "moveaxis",
            "swapaxes",
            "swapdims",
            "reshape",
            "view",
            "view_as",
        ),
        *("flatten", "unflatten", "unsqueeze", "squeeze", "contiguous", "clone", "flip", "roll", "adjoint"),
        *("T.__get__", "mT.__get__", "H.__get__", "mH.__get__", "conj", "positive"),
    )
}
_SCALINGS = {f"torch.{owner}{name}" for owner in ("", "Tensor.") for name in ("mul", "multiply", "__rmul__")}
_DIVISIONS = {f"torch.{owner}{name}" for owner in ("", "Tensor.") for name in ("div", "divide", "true_divide")}
_NEGATIONS = {"torch.neg", "torch.Tensor.neg", "torch.negative", "torch.Tensor.negative"}


_REORDERING_ARGUMENTS = frozenset(
    "dim dims dim0 dim1 axis axis0 axis1 source destination shape sizes size shifts "
    "start_dim end_dim memory_format other".split()
)


def _isometry(name: str, args: Any, kwargs: dict[str, Any], found: list[Source], output: Tensor) -> float | None:
    """The scale c if ``output`` is c times a reordering of the only source, else None.

    An argument that is not known could change what is computed (``rounding_mode``), so it means None.
    """
    if len(found) != 1 or output.numel() != found[0].tensor.numel() or output.dtype != found[0].tensor.dtype:
        return None
    if name in _REORDERINGS:
        known = _REORDERING_ARGUMENTS.issuperset(kwargs) and not any(isinstance(a, torch.dtype) for a in args)
        return 1.0 if known else None
    if kwargs:
        return None
    if name in _NEGATIONS:
        return -1.0
    if name in _SCALINGS | _DIVISIONS and len(args) == 2:
        left, right = args
        if left is not found[0].tensor and name in _DIVISIONS:
            return None
        other = right if left is found[0].tensor else left
        if isinstance(other, Tensor):
            if other.ndim or other.requires_grad or other.is_complex():
                return None
            other = other.item()
        if isinstance(other, numbers.Real) and (other or name in _SCALINGS):
            return float(other) if name in _SCALINGS else 1.0 / float(other)
    return None


def _apart(func: Callable[..., Any], args: Any, result: Any) -> Any:
    """A copy of an output that is a view, so that a later in-place operation leaves its place in the graph alone.

    (Changing a view in place rewrites the history of its base, and the edge that a recording holds would lead nowhere.)
    """
    view = isinstance(result, Tensor) and result.requires_grad and result._is_view()
    return result.clone() if view and func in RULES and all(result is not a for a in args) else result


def _fits(place: Place, outputs: list[Tensor], batch: int) -> bool:
    """Whether an output can have its samples there: a mask may select no rows at the probe, and some later."""
    if isinstance(place, Layout):
        return place.fits(outputs[0], batch)
    return place is None or outputs[0].shape == place


def _differentiable(tensor: Tensor) -> bool:
    """Whether a tensor has a graph; a view of a parameter made under no_grad() says that it needs one, and has none."""
    return tensor.requires_grad and not (tensor.grad_fn is None and tensor._is_view())


class Witness(Recorder):
    """The recorder of a probe: finds out where samples lie instead of being told.

    It keeps every tensor that an operation gives. Given the log of a run with fewer samples, it compares the two.

    Args:
        parameters: The tracked parameters by name.
        batch: Number of samples in the pass.
        device: Where the model is.
        before: The run with fewer samples, or None in the first run.
        locate: Says where an output has its samples, given the same output of the first run.
    """

    def __init__(
        self,
        parameters: dict[str, Tensor],
        batch: int,
        device: torch.device,
        before: "Witness | None" = None,
        locate: Callable[[Tensor, Tensor], Place] = lambda *_: None,
    ) -> None:
        super().__init__(parameters, batch, self._judge())
        self.device, self.before, self.locate = device, before, locate
        self.log: list[Step] = []
        self.decisions: list[tuple[str, Place]] = []
        self.content, self.chance = Content(), Chance(device)
        self.normalizes = False
        """Whether a normalization was seen that is put right."""

    def chance_matters(self) -> bool:
        """Whether random numbers were drawn that may change the outputs."""
        return self.chance.end()

    def begin(self, batch: Any) -> None:
        self.content.begin(inputs_of(batch))
        self.chance = Chance(self.device)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if composites.parts(func, args) is not None:
            return super().__torch_function__(func, types, args, kwargs)
        kwargs = kwargs or {}
        given = list(tensors((args, kwargs)))
        shapes = [t.shape for t in given]  # before an operation in place changes them
        result = self.chance.follow(func, given, lambda: func(*args, **kwargs))
        self.conduct.note(func, result)
        self.normalizes |= put_right(func, result)
        outputs = list(tensors(result))
        name = full_name(func)
        if not outputs and not name.endswith("__setitem__"):
            return result
        found = [self.sources[id(t)] for t in given if id(t) in self.sources]
        if found:
            result = _apart(func, args, result)
            outputs = list(tensors(result))
        # The first run's values are kept as they are now: a later operation may change them in place.
        kept = outputs if self.before is not None else [t.detach().clone() for t in outputs]
        self.log.append(Step(name, shapes, kept))
        if self.before is None:
            return result
        self.content.follow(func, args, kwargs, outputs, self._same)
        outputs = [t for t in outputs if _differentiable(t)]
        if found and outputs:
            self._see(func, args, kwargs, found, outputs)
        return result

    def _derive(
        self, name: str, args: Any, kwargs: dict[str, Any], found: list[Source], output: Tensor, index: int
    ) -> None:
        # Rows that the content selects can be as many in both runs, or none: that is no function of parameters alone.
        if plain_name(name) not in _SHAPE_ONLY and self.content.touches(tensors((args, kwargs))):
            for source in found:
                self.unruled.update(dict.fromkeys(source.parameters, name))
        super()._derive(name, args, kwargs, found, output, index)

    @property
    def _same(self) -> Step | None:
        """The latest operation in the run with fewer samples."""
        assert self.before is not None
        index = len(self.log) - 1
        step = self.before.log[index] if index < len(self.before.log) else None
        fits = step is not None and step.name == self.log[-1].name and len(step.inputs) == len(self.log[-1].inputs)
        return step if fits else None

    def _judge(self) -> Iterator[tuple[str, Place]]:
        while True:
            step, same = self.log[-1], self._same
            position = next(i for i, t in enumerate(step.outputs) if _differentiable(t))
            place = None if same is None else self.locate(same.outputs[position], step.outputs[position])
            self.decisions.append((step.name, place))
            yield self.decisions[-1]
