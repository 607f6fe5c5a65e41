"""Which forward passes treat every sample alike, whatever its content.

The probe learns from three samples where each sample's rows lie. That holds for a batch of other samples if

- the batch goes through the same operations and reads the same values off its tensors (``if mask.all()``, ``.item()``);
- none of these operations can move rows from sample to sample by what is in them, or carry a result over several
  samples (for instance a maximum over the batch) back to single ones.

The first is compared for every batch (:class:`Tape`), the second is found out once, in the probe, by following the
samples' content (:class:`DataFlow`). Any other batch is compared with the definition: see
:mod:`tangentlab.kernels._placement`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import resolve_name

_ROWWISE = frozenset(
    """
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d embedding embedding_bag
    batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize
    relu relu6 gelu silu mish elu selu celu leaky_relu prelu tanh sigmoid softplus softsign hardtanh hardswish
    hardsigmoid hardshrink softshrink tanhshrink softmax log_softmax softmin logsigmoid glu threshold erf erfc
    sin cos tan sinh cosh asinh atan atan2 exp expm1 exp2 log log1p log2 log10 sqrt rsqrt reciprocal square pow abs neg
    negative sign floor ceil round trunc clamp clamp_min clamp_max clip
    minimum maximum add sub rsub mul div multiply divide true_divide subtract addcmul addcdiv lerp floordiv floor_divide
    remainder mod fmod
    matmul mm bmm addmm baddbmm addbmm mv einsum tensordot dot outer cross
    mean sum var std var_mean std_mean norm vector_norm prod logsumexp nansum
    max min amax amin aminmax argmax argmin any all count_nonzero median mode
    reshape view flatten unflatten permute transpose t T mT H mH adjoint movedim moveaxis swapaxes swapdims unsqueeze
    squeeze view_as reshape_as as_strided ravel
    expand expand_as broadcast_to broadcast_tensors repeat tile contiguous clone copy chunk split tensor_split unbind
    cat concat concatenate stack hstack vstack pad flip roll tril triu diagonal diag_embed
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices boolean_dispatch
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d lp_pool2d
    interpolate upsample pixel_shuffle pixel_unshuffle unfold fold dropout dropout2d dropout1d dropout3d alpha_dropout
    feature_alpha_dropout scaled_dot_product_attention masked_fill fill zero where gru lstm rnn_tanh rnn_relu gru_cell
    lstm_cell rnn_tanh_cell rnn_relu_cell one_hot bucketize
    zeros ones full arange empty eye linspace tensor as_tensor zeros_like ones_like full_like
    empty_like new_zeros new_ones new_full new_empty new_tensor meshgrid
    to type type_as float double half bfloat16 int long bool cpu cuda detach data grad
    eq ne lt le gt ge logical_not logical_and logical_or logical_xor and or xor invert bitwise_not bitwise_and
    bitwise_or bitwise_xor isnan isfinite isinf select narrow finfo
    requires_grad_ real imag conj resolve_conj view_as_real view_as_complex complex polar positive weight_norm
    _weight_norm vdot
    """.split()
)
"""Operations that put what they make of a row where the row was, or reduce over whole axes."""
_ALONG = {
    **dict.fromkeys(
        "sort argsort msort cumsum cumprod cummax cummin logcumsumexp gather scatter scatter_add scatter_reduce "
        "index_select index_add index_copy index_fill".split(),
        1,
    ),
    **dict.fromkeys("topk kthvalue take_along_dim".split(), 2),
}
"""Operations that move rows along one axis, and which of their arguments that axis is."""
READINGS = frozenset("__bool__ item __int__ __float__ __index__ __complex__ tolist equal allclose is_nonzero".split())
ESCAPES = frozenset("numpy __array__ __dlpack__ data_ptr storage untyped_storage __reduce_ex__ __deepcopy__".split())
_INDEXING = ("__getitem__", "__setitem__")


@lru_cache(4096)
def plain_name(name: str) -> str:
    """Return an operation's name without its owner, without the marks of in-place, reflected and property forms."""
    last = name.removesuffix(".__get__").rpartition(".")[2]
    if last in _INDEXING:
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


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among an operation's arguments or results."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)


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
        if name in _INDEXING:
            moves = _moves_by_index(args, before, self.seen)
        elif name in _ALONG:
            moves = _moves_along(args, kwargs, _ALONG[name], before)
        else:
            moves = bool(outputs) and name not in _ROWWISE
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


def memory(tensor: Tensor) -> int | None:
    """Return a number for the memory that holds a tensor; None for a tensor without memory, as inside of ``vmap``."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):
        return None


def _moves_by_index(args: Any, before: Step, content: set[int | None]) -> bool:
    """Return whether indexing may move rows along the sample axis: by a tensor with content or a list of numbers."""
    tensor, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if not isinstance(tensor, Tensor):
        return False
    axis = 0
    for place, part in enumerate(index):
        if part is Ellipsis:
            axis = tensor.ndim - sum(_consumed(p) for p in index[place + 1 :])
            continue
        for offset in range(_consumed(part)):
            varies = tensor.shape[axis + offset] != before.inputs[0][axis + offset]
            if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) and memory(part) in content:
                return True  # selects as many rows as the content says
            if varies and (isinstance(part, list) or (isinstance(part, Tensor) and memory(part) in content)):
                return True
        axis += _consumed(part)
    return False


def _consumed(part: Any) -> int:
    """Return how many axes a part of an index covers."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) else 1


def _moves_along(args: Any, kwargs: dict[str, Any], position: int, before: Step) -> bool:
    """Return whether an operation works along the sample axis, or along an axis that is not known."""
    first = next(tensors((args, kwargs)))
    dim = kwargs.get("dim", kwargs.get("axis", args[position] if len(args) > position else -1))
    if isinstance(dim, bool) or not isinstance(dim, int) or not -first.ndim <= dim < first.ndim:
        return True
    return first.shape[dim] != before.inputs[0][dim]


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
