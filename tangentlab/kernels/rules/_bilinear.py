"""Bilinear maps: gradients that are sums over positions of outer products of three vectors.

y_t[o] = a_t^T W[o] b_t + c[o]  =>  dL/dW[o] = sum_t g_t[o] a_t b_t^T        (d_out x d_1 x d_2),  t = 1..S

A bilinear map is a linear map of the products of all entries of its two inputs, a_t (x) b_t.
"""

import torch.nn.functional as F
from torch import Tensor

from tangentlab.kernels.rules._broadcast import Broadcast
from tangentlab.kernels.rules._outer import Outer
from tangentlab.kernels.rules._registry import rule
from tangentlab.kernels.rules._use import Call, Uses


@rule(F.bilinear, example="nn.Bilinear", form="outer")
def bilinear(call: Call, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Uses:
    """y = a^T W b + c, a of shape (..., d_1) and b of shape (..., d_2)."""
    uses: Uses = []
    if call.tracks(weight):
        a, b = (call.split(x).flatten(1, -2) for x in (input1, input2))
        uses.append((weight, Outer(weight.shape, (a.unsqueeze(3) * b.unsqueeze(2)).flatten(2))))
    if bias is not None:
        uses.append((bias, Broadcast.aligned(bias, call.output)))
    return uses
