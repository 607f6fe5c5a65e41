"""Which operations may move rows from sample to sample, by what is in them or by their places in the batch."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

INDEXING = ("__getitem__", "__setitem__")
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
    squeeze view_as reshape_as ravel
    expand expand_as broadcast_to broadcast_tensors repeat tile contiguous clone copy unbind stack pad tril triu
    diagonal diag_embed
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices boolean_dispatch
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d lp_pool2d
    interpolate upsample pixel_shuffle pixel_unshuffle unfold fold dropout dropout2d dropout1d dropout3d alpha_dropout
    feature_alpha_dropout scaled_dot_product_attention masked_fill fill zero where gru lstm rnn_tanh rnn_relu gru_cell
    lstm_cell rnn_tanh_cell rnn_relu_cell one_hot bucketize
    zeros ones full arange empty eye linspace tensor as_tensor zeros_like ones_like full_like
    empty_like new_zeros new_ones new_full new_empty new_tensor meshgrid
    to type type_as float double half bfloat16 int long bool cpu cuda detach data grad
    eq ne lt le gt ge logical_not logical_and logical_or logical_xor and or xor invert bitwise_not bitwise_and
    bitwise_or bitwise_xor isnan isfinite isinf select finfo
    requires_grad_ real imag conj resolve_conj view_as_real view_as_complex complex polar positive weight_norm
    _weight_norm vdot
    """.split()
)
"""Operations that put what they make of a row where the row was, or reduce over whole axes."""
_ALONG: dict[str, tuple[int, int | None]] = {
    **dict.fromkeys(
        "sort argsort msort cumsum cumprod cummax cummin logcumsumexp gather scatter scatter_add scatter_reduce "
        "index_select index_add index_copy index_fill".split(),
        (1, -1),
    ),
    **dict.fromkeys("topk kthvalue take_along_dim".split(), (2, -1)),
    **dict.fromkeys("cat concat concatenate".split(), (1, 0)),
    **dict.fromkeys("chunk split tensor_split".split(), (2, 0)),
    "narrow": (1, None),
    "flip": (1, None),
    "roll": (2, None),
    "hstack": (9, 1),
    "vstack": (9, 0),
}
"""Operations that move rows along some axes; which of their arguments these are, and their default (None: all)."""
_PRODUCTS = frozenset("linear bilinear matmul mm bmm mv einsum tensordot conv1d conv2d conv3d".split())
"""Products, which permute rows if one of their operands is a permutation."""
_SUMS = frozenset("addmm baddbmm addbmm".split())
"""Products with a first operand that is added."""
_LOOKUPS = frozenset("embedding embedding_bag".split())


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


def memory(tensor: Tensor) -> int | None:
    """Return a number for the memory that holds a tensor; None for a tensor without memory, as inside of ``vmap``."""
    try:
        return tensor.untyped_storage().data_ptr() or id(tensor)
    except (RuntimeError, NotImplementedError):
        return None


def moves_rows(
    name: str, full: str, args: Any, kwargs: dict[str, Any], shapes: Sequence[torch.Size], content: set[int | None]
) -> bool:
    """Return whether an operation on content of the samples may move rows along the sample axis.

    Args:
        name: The operation's name without its owner.
        full: Its name with its owner.
        args: Its arguments.
        kwargs: Its further arguments.
        shapes: The shapes of its operands in a run with another number of samples, which show the sample axis.
        content: The memory of tensors with content of the samples.
    """
    given = list(tensors((args, kwargs)))
    if [t.ndim for t in given] != [len(then) for then in shapes]:
        return True  # the other run did something else here
    if name in INDEXING:
        return _by_index(args, shapes, content)
    if name in _ALONG:
        if name == "flip" and len(args) > 2:
            args = args[0], args[1:]  # x.flip(0, 1)
        return _along(args, kwargs, *_ALONG[name], shapes)
    if name in _PRODUCTS or name in _SUMS:
        # An operand with a sample axis and without content is a matrix of places in the batch.
        pairs = list(zip(given, shapes, strict=True))[name in _SUMS :]
        return any(t.shape != then and memory(t) not in content for t, then in pairs)
    if name in _LOOKUPS:  # in a table of the samples
        return any(memory(t) in content for t in given if t.is_floating_point())
    return name not in _ROWWISE or (full == "torch.Tensor.unfold" and _along(args, kwargs, 1, None, shapes))


def _by_index(args: Any, shapes: Sequence[torch.Size], content: set[int | None]) -> bool:
    """Return whether indexing may move rows along the sample axis: all but whole slices, and rows as they are."""
    tensor, index = args[0], args[1] if isinstance(args[1], tuple) else (args[1],)
    if not isinstance(tensor, Tensor):
        return False
    axis = 0
    for place, part in enumerate(index):
        if part is Ellipsis:
            axis = tensor.ndim - sum(_consumed(p) for p in index[place + 1 :])
            continue
        for offset in range(_consumed(part)):
            varies = tensor.shape[axis + offset] != shapes[0][axis + offset]
            if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) and memory(part) in content:
                return True  # selects as many rows as the content says
            by_content = isinstance(part, Tensor) and memory(part) in content
            if varies and (by_content or not _whole(part, tensor.shape[axis + offset])):
                return True
        axis += _consumed(part)
    return False


def _whole(part: Any, size: int) -> bool:
    """Return whether a part of an index leaves the rows of an axis where they are, or selects a single one."""
    if isinstance(part, slice):
        return part.indices(size) == (0, size, 1)
    if isinstance(part, Tensor):
        if part.dtype in (torch.bool, torch.uint8) or part.numel() != size:
            return False
        return bool((part.flatten() == torch.arange(size, device=part.device)).all())  # (B, 1, 1), too
    return not isinstance(part, list)


def _consumed(part: Any) -> int:
    """Return how many axes a part of an index covers."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return part.ndim if isinstance(part, Tensor) and part.dtype in (torch.bool, torch.uint8) else 1


def _along(args: Any, kwargs: dict[str, Any], position: int, default: int | None, shapes: Sequence[torch.Size]) -> bool:
    """Return whether an operation works along the sample axis, or along an axis that is not known."""
    operands = list(zip(tensors(args[0] if args else kwargs), shapes, strict=False))  # several where they are joined
    operands = [(t, then) for t, then in operands if t.numel()]  # an empty cache has a single axis
    named = [kwargs[name] for name in ("dim", "dims", "axis", "dimension") if name in kwargs]
    given = named[0] if named else args[position] if len(args) > position else default
    dims: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if not all(isinstance(dim, int) and not isinstance(dim, bool) for dim in dims):
        return True
    return any(
        not -t.ndim <= dim < t.ndim or t.ndim != len(then) or t.shape[dim] != then[dim]
        for t, then in operands
        for dim in dims
    )
