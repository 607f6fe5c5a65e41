"""Bags of embeddings: gradients that add a multiple of an output gradient to the row of every token of a bag.

y = sum_t p_t W[i_t]  =>  dL/dW[v] = sum over t with i_t = v of p_t g        (V x d),  t = 1..S tokens of a bag

with p_t = 1 for a sum, one over the number of tokens for a mean, or weights that are given.
"""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._lookup import Lookup
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Uses


@rule(F.embedding_bag, example="nn.EmbeddingBag with bags of one length", form="lookup")
def embedding_bag(
    call: Call,
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Uses:
    """y = sum or mean of W[i] over a bag; tokens under ``padding_idx`` do not count."""
    plain = input.ndim == 2 and offsets is None and max_norm is None and not scale_grad_by_freq
    if not plain or mode not in ("sum", "mean") or call.layout.axis != 0:
        return []
    index = call.split(input)  # (B, bags, S)
    if per_sample_weights is None:
        factors = torch.ones_like(index, dtype=weight.dtype)
    else:
        factors = call.split(per_sample_weights)
    if padding_idx is not None:
        factors = factors * (index != padding_idx % len(weight))
    if mode == "mean":
        factors = factors / factors.sum(2, keepdim=True).clamp_min(1)
    return [(weight, Bag(weight.shape, index.flatten(1), factors=factors))]


@dataclass
class Bag(Lookup):
    """A table of which a sample looks up bags of rows.

    Attributes:
        factors: What each row is multiplied with, (B, bags, S).
    """

    factors: Tensor = field(kw_only=True)

    def outputs(self, g: Tensor) -> Tensor:
        g = g.reshape(*g.shape[:2], -1, 1, self.shape[1])  # (B, R, bags, 1, d)
        return (g * self.factors[:, None, :, :, None]).flatten(2, 3)
