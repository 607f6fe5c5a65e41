"""Arguments of PyTorch functions that several packages have rules for, each with the defaults that PyTorch has.

A rule that takes ``*args, **kwargs`` binds them with one of these classes: ``EmbeddingCall(*args, **kwargs)``.
"""

from typing import Any, NamedTuple

from torch import Tensor


class ConvolutionCall(NamedTuple):
    """Arguments of ``F.conv1d``, ``F.conv2d`` and ``F.conv3d``."""

    input: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: Any = 1
    padding: Any = 0
    dilation: Any = 1
    groups: int = 1


class BatchNormCall(NamedTuple):
    """Arguments of ``F.batch_norm``."""

    input: Tensor
    running_mean: Tensor | None
    running_var: Tensor | None
    weight: Tensor | None = None
    bias: Tensor | None = None
    training: bool = False
    momentum: float = 0.1
    eps: float = 1e-5


class EmbeddingCall(NamedTuple):
    """Arguments of ``F.embedding``."""

    input: Tensor
    weight: Tensor
    padding_idx: int | None = None
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    sparse: bool = False


class EmbeddingBagCall(NamedTuple):
    """Arguments of ``F.embedding_bag``."""

    input: Tensor
    weight: Tensor
    offsets: Tensor | None = None
    max_norm: float | None = None
    norm_type: float = 2.0
    scale_grad_by_freq: bool = False
    mode: str = "mean"
    sparse: bool = False
    per_sample_weights: Tensor | None = None
    include_last_offset: bool = False
    padding_idx: int | None = None
