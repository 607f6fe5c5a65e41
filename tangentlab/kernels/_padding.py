"""Batches of a loader as one set of samples: all are padded to the longest text of the loader."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab.kernels._targets import IGNORED, argument_names

Side = Literal["left", "right"]
_NOT_TOKENS = ("token_type", "segment", "position")
"""Integers beside tokens, for which 0 is always a valid number."""
_TARGETS = "labels"
_DEPTH = 3
"""How far a tokenizer is looked for inside a collate function."""


@dataclass(frozen=True)
class _Mask:
    """Which positions count, in every batch: (B, ..., T) of 0 and 1, T different from batch to batch.

    Attributes:
        part: What the batches call it.
        batches: Its values, True where a position counts.
        default: The side that is padded where no batch shows it.
    """

    part: str
    batches: list[Tensor]
    default: Side

    @property
    def prefix(self) -> str:
        """What the names of the parts that it covers start with."""
        return re.sub("(input_|attention_|key_padding_)?mask$", "", self.part).rstrip("_.")

    @cached_property
    def side(self) -> Side | None:
        """The side that is padded; None if both are."""
        left = any(bool((~mask[..., 0] & mask[..., -1]).any()) for mask in self.batches)
        right = any(bool((mask[..., 0] & ~mask[..., -1]).any()) for mask in self.batches)
        if left and right:
            return None
        return "left" if left else "right" if right else self.default

    def padding(self) -> list[Tensor]:
        """Return where the padding is: the run of positions at the padded end that do not count."""
        if self.side == "left":
            return [mask.cumsum(-1) == 0 for mask in self.batches]
        return [mask.flip(-1).cumsum(-1).flip(-1) == 0 for mask in self.batches]


class Padding:
    """Joins parts of batches, padding what a mask says does not count.

    Args:
        parts: Each part of the batches, by name.
        data: What errors call the data.
        model: Whose configuration may know the number of the padding token.
        collate: The loader's function, whose tokenizer may know it, and the side.
    """

    def __init__(
        self, parts: Mapping[str, list[Any]], data: str, model: nn.Module | None, collate: Callable[..., Any] | None
    ) -> None:
        self._data = data
        tokenizer = tokenizer_of(collate)
        self._token = next((t for t in (_token_of(model), _number(tokenizer)) if t is not None), None)
        side: Side = "left" if getattr(tokenizer, "padding_side", "right") == "left" else "right"
        self._masks = [_Mask(part, found, side) for part, values in parts.items() if (found := _as_mask(part, values))]

    def join(self, part: str, batches: Sequence[Tensor]) -> Tensor:
        """Return the batches of one part as one tensor.

        Raises:
            TangentError: They have different shapes, and no mask says that what would be added does not count.
        """
        shapes = {tuple(batch.shape[1:]) for batch in batches}
        if len(shapes) == 1:
            return torch.cat(list(batches))
        axes = [axis for axis, sizes in enumerate(zip(*shapes, strict=False), 1) if len(set(sizes)) > 1]
        if len({len(shape) for shape in shapes}) > 1 or len(axes) > 1:
            raise self._refusal(part, shapes)
        axis = axes[0]
        mask = self._mask_of(part, [batch.shape[: axis + 1] for batch in batches])
        if mask is None:
            raise self._refusal(part, shapes)
        if mask.side is None:
            raise TangentError(
                f"The texts of {self._data} are padded on both sides, as {mask.part!r} says.",
                "Batches of different lengths are padded to one length, and it is not clear on which side.",
                "Pad on one side only, or all texts to one length.",
            )
        value, longest = self._value(part, batches, mask), max(batch.shape[axis] for batch in batches)
        return torch.cat([_pad(batch, axis, longest, value, mask.side) for batch in batches])

    def _mask_of(self, part: str, shapes: list[torch.Size]) -> _Mask | None:
        """Return the mask that covers a part: of its shapes, and of its name ("decoder_" for the decoder's tokens)."""
        fitting = [mask for mask in self._masks if [batch.shape for batch in mask.batches] == shapes]
        own = [mask for mask in fitting if part.startswith(mask.prefix)]
        if part == _TARGETS:  # whichever has its shapes
            own = own or fitting
        return max(own, key=lambda mask: len(mask.prefix), default=None)

    def _value(self, part: str, batches: Sequence[Tensor], mask: _Mask) -> float:
        """Return what is put at padded positions: what is there already, if anything is."""
        if batches[0].is_floating_point() or batches[0].is_complex() or "mask" in part:
            return float(_marks_padding(part))
        pairs = zip(batches, mask.padding(), strict=True)
        seen = [batch[where] for batch, where in pairs if batch.shape == where.shape]
        counts = Counter(torch.cat(seen).tolist()) if seen else Counter()
        if len(counts) == 1:
            return next(iter(counts))
        if part == _TARGETS:
            return IGNORED
        if any(word in part for word in _NOT_TOKENS):
            return 0
        if self._token is not None:
            return self._token
        return counts.most_common(1)[0][0] if counts else 0

    def _refusal(self, part: str, shapes: set[tuple[int, ...]]) -> TangentError:
        shown = ", ".join(f"(B, {', '.join(map(str, shape))})" for shape in sorted(shapes)[:3])
        return TangentError(
            f"The batches of {self._data} have different shapes{f', {part}' if part else ''}: {shown}.",
            "They would have to be padded to one length, and no mask of that length says that padding does not count.",
            "Return an attention_mask of 0 and 1 with each batch (as a dict), or make all samples of one shape, for "
            'instance with padding="max_length".',
        )


def _pad(batch: Tensor, axis: int, longest: int, value: float, side: Side) -> Tensor:
    missing = longest - batch.shape[axis]
    if not missing:
        return batch
    shape = list(batch.shape)
    shape[axis] = missing
    more = batch.new_full(shape, value)
    return torch.cat([more, batch] if side == "left" else [batch, more], axis)


def _marks_padding(part: str) -> bool:
    """Return whether 1 in a mask stands for padding, as in PyTorch's attention, and not for what counts."""
    return part.endswith("key_padding_mask")


def _as_mask(part: str, batches: list[Any]) -> list[Tensor] | None:
    """Return a mask of what counts, if a part of the batches is one."""
    name = part.rpartition(".")[2]
    if not (name in ("mask", "input_mask") or name.endswith(("attention_mask", "key_padding_mask"))):
        return None
    if "global" in name or not all(isinstance(b, Tensor) and b.ndim >= 2 for b in batches):
        return None
    if len({b.shape[1:-1] for b in batches}) > 1 or not all(bool(((b == 0) | (b == 1)).all()) for b in batches):
        return None
    return [(b == 0) == _marks_padding(part) for b in batches]


def _token_of(model: nn.Module | None) -> int | None:
    """Return the number of the padding token that a model's configuration names."""
    modules = [] if model is None else model.modules()
    return next((n for m in modules if (n := _number(getattr(m, "config", None))) is not None), None)


def _number(owner: Any) -> int | None:
    found = getattr(owner, "pad_token_id", None)
    return found if isinstance(found, int) and found >= 0 else None


def tokenizer_of(collate: Any, depth: int = _DEPTH) -> Any:
    """Return the tokenizer that a collate function uses: its own, an argument of it, or a variable; None without."""
    if hasattr(collate, "pad_token_id") and hasattr(collate, "padding_side"):
        return collate
    if depth == 0 or not callable(collate) or isinstance(collate, (type, nn.Module)):
        return None
    inside: list[Any] = []
    if isinstance(collate, partial):
        inside += [collate.func, *collate.args, *collate.keywords.values()]
    elif inspect.isroutine(collate):
        inside.append(getattr(collate, "__self__", None))
        function = inspect.unwrap(getattr(collate, "__func__", collate))
        if inspect.isfunction(function):
            try:
                variables = inspect.getclosurevars(function)
                inside += [*variables.nonlocals.values(), *variables.globals.values()]
            except ValueError:  # a variable that has no value yet
                pass
    else:
        inside += getattr(collate, "__dict__", {}).values()
    return next((t for part in inside if (t := tokenizer_of(part, depth - 1)) is not None), None)


def join_batches(
    inputs: list[Any],
    targets: list[Any],
    data: str,
    model: nn.Module | None,
    collate: Callable[..., Any] | None,
) -> tuple[Any, Any]:
    """Return the inputs of all batches as one, and their targets: a tensor, a list of one per sample, or None.

    Args:
        inputs: The inputs of each batch, tensors in dicts and tuples that are built alike.
        targets: The targets of each batch, or None.
        data: What errors call the data.
        model: The model, if it is known.
        collate: The loader's function.

    Raises:
        TangentError: The batches do not fit together.
    """
    if not inputs:
        raise TangentError(f"{data} is empty.", "The DataLoader gave no batch.", "Pass a loader with data.")
    leaves = [_leaves(batch, argument_names(model)) for batch in inputs]
    for other in leaves:
        if different := other.keys() ^ leaves[0].keys():
            raise TangentError(
                f"The batches of {data} have different parts: {', '.join(map(repr, sorted(different)))}.",
                "All samples must reach the model in the same way.",
                "Return the same tensors in every batch, or pass input= to pick what the model takes.",
            )
    parts = {part: [batch[part] for batch in leaves] for part in leaves[0]}
    padding = Padding(parts, data, model, collate)
    joined = {part: _join_part(part, batches, data, padding) for part, batches in parts.items()}
    return _assemble(inputs[0], argument_names(model), joined), _join_targets(targets, padding)


def shortest(inputs: list[Any]) -> tuple[int, Any] | None:
    """Return the first sample of the batch with the fewest numbers per sample, and its number; None if all agree."""
    sizes, starts, start = [], [], 0
    for batch in inputs:
        tensors = [leaf for leaf in _leaves(batch).values() if isinstance(leaf, Tensor) and leaf.ndim]
        sizes.append(sum(leaf[0].numel() for leaf in tensors if len(leaf)))
        starts.append(start)
        start += max((len(leaf) for leaf in tensors), default=0)
    least = min(range(len(sizes)), key=sizes.__getitem__)
    if sizes[least] == max(sizes):
        return None
    return starts[least], _first(inputs[least])


def _first(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value[:1] if value.ndim else value
    if isinstance(value, Mapping):
        return {key: _first(part) for key, part in value.items()}
    return tuple(map(_first, value)) if isinstance(value, (tuple, list)) else value


def _join_part(part: str, batches: list[Any], data: str, padding: Padding) -> Any:
    if all(isinstance(batch, Tensor) and batch.ndim for batch in batches):
        return padding.join(part, batches)
    first = batches[0]
    if isinstance(first, Tensor) or any(type(b) is not type(first) or b != first for b in batches):
        raise TangentError(
            f"{part!r} of the batches of {data} is not a tensor of samples, and changes from batch to batch.",
            "It is not known which samples it belongs to.",
            "Leave it out of the batches, or pass input= to pick what the model takes.",
        )
    return first


def _join_targets(targets: list[Any], padding: Padding) -> Any:
    if all(isinstance(target, Tensor) and target.ndim for target in targets):
        try:
            return padding.join(_TARGETS, targets)
        except TangentError:  # the kernel does not need them
            pass
    if not all(isinstance(target, (tuple, list)) or (isinstance(target, Tensor) and target.ndim) for target in targets):
        return None
    return [one for target in targets for one in target]


def _leaves(value: Any, names: Sequence[str] = (), path: str = "") -> dict[str, Any]:
    """Return what is not a dict, tuple or list in an input, by its path; arguments have the names of the model's."""
    pieces = _pieces(value, names)
    if pieces is None:
        return {path: value}
    return {
        leaf: found
        for key, part in pieces.items()
        for leaf, found in _leaves(part, path=f"{path}.{key}" if path else key).items()
    }


def _pieces(value: Any, names: Sequence[str]) -> dict[str, Any] | None:
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        return {names[i] if i < len(names) else str(i): part for i, part in enumerate(value)}
    return None


def _assemble(like: Any, names: Sequence[str], joined: dict[str, Any], path: str = "") -> Any:
    pieces = _pieces(like, names)
    if pieces is None:
        return joined[path]
    built = [_assemble(part, (), joined, f"{path}.{key}" if path else key) for key, part in pieces.items()]
    return dict(zip(like, built, strict=True)) if isinstance(like, Mapping) else tuple(built)
