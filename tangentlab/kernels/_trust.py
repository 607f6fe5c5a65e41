"""Which operations treat every sample alike, whatever its content.

In a forward pass made of these alone, where a sample's rows lie cannot depend on the data, so what the probe found on
three samples holds for all. Anything else (indexing by a tensor, sorting, masks that select, decisions in Python, code
that the recorder cannot see into) makes the engine wary: then every batch is compared with plain differentiation.
"""

import re
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

_SAFE = frozenset(
    """
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d embedding embedding_bag
    batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize
    relu relu6 gelu silu mish elu selu celu leaky_relu prelu tanh sigmoid softplus softsign hardtanh hardswish
    hardsigmoid hardshrink softshrink tanhshrink softmax log_softmax softmin logsigmoid glu threshold erf
    sin cos tan exp expm1 log log1p sqrt rsqrt reciprocal square pow abs neg negative sign clamp clamp_min clamp_max
    minimum maximum add sub rsub mul div multiply divide true_divide subtract addcmul addcdiv lerp
    matmul mm bmm addmm baddbmm addbmm mv einsum tensordot dot outer
    mean sum var std var_mean norm amax amin prod logsumexp
    reshape view flatten unflatten permute transpose t T mT movedim moveaxis swapaxes swapdims unsqueeze squeeze view_as
    expand expand_as broadcast_to repeat contiguous clone chunk split unbind cat concat stack pad flip roll tril triu
    avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool2d_with_indices boolean_dispatch
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d lp_pool2d
    interpolate upsample pixel_shuffle unfold fold dropout dropout2d dropout1d dropout3d alpha_dropout
    feature_alpha_dropout scaled_dot_product_attention masked_fill where gru lstm rnn_tanh rnn_relu gru_cell lstm_cell
    rnn_tanh_cell rnn_relu_cell zeros ones full arange empty eye linspace tensor zeros_like ones_like full_like
    empty_like new_zeros new_ones new_full new_empty to type type_as float double half bfloat16 detach
    eq ne lt le gt ge logical_not logical_and logical_or isnan isfinite isinf __getitem__ select narrow
    requires_grad_ real imag conj positive weight_norm _weight_norm vdot
    """.split()
)
_DECISIONS = frozenset("__bool__ item __int__ __float__ __index__ tolist numpy __array__ equal allclose".split())


def plain_name(name: str) -> str:
    """An operation's name without its owner, its underscores of in-place and reflected forms, and its property part."""
    last = name.removesuffix(".__get__").rpartition(".")[2]
    if last.startswith("__") and last != "__getitem__":
        last = re.sub(r"^__(r|i)?(add|sub|mul|matmul|truediv|pow|neg|abs|eq|ne|lt|le|gt|ge)__$", r"\2", last)
        return {"truediv": "div"}.get(last, last)
    return last.removesuffix("_") if not last.startswith("_") and last != "requires_grad_" else last


def is_suspicious(name: str, args: Any, outputs: Iterable[Tensor], on_source: bool) -> bool:
    """Whether an operation may place samples by their content.

    Args:
        name: Its name.
        args: Its arguments.
        outputs: The tensors that it gives.
        on_source: Whether it works on parameters, which have no samples to place.
    """
    short = plain_name(name)
    if not any(True for _ in outputs):
        return short in _DECISIONS
    if short == "__getitem__" and not on_source:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        return any(isinstance(part, (Tensor, list)) for part in index)
    return short not in _SAFE and not on_source


def has_hidden_code(values: Tensor) -> bool:
    """Whether the graph passes through code that no recorder sees: own autograd functions, scripted graphs."""
    seen, stack = set(), [values.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction) or "Graph" in node.name():
            return True
        stack.extend(following for following, _ in node.next_functions)
    return False
