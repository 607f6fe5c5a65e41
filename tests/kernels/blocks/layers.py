"""Normalizations, attention, embeddings and recurrent layers."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(affine=(True, False))
def batch_norm(d: int, t: int, affine: bool) -> nn.Module:
    return Functional(lambda m, x: m.a(x.mT).mT, a=nn.BatchNorm1d(d, affine=affine))


@block(order=("flat", "image"))
def batch_norm_of_rows(d: int, t: int, order: str) -> nn.Module:
    if order == "flat":
        return Functional(lambda m, x: m.a(x.flatten(0, 1)).view(x.shape), a=nn.BatchNorm1d(d))
    return Functional(lambda m, x: m.a(x.unsqueeze(1)).squeeze(1), a=nn.BatchNorm2d(1))


@block(bias=(True, False), axes=(1, 2))
def layer_norm(d: int, t: int, bias: bool, axes: int) -> nn.Module:
    return nn.LayerNorm((t, d)[-axes:], bias=bias, eps=1e-2)


@block()
def rms_norm(d: int, t: int) -> nn.Module:
    return nn.RMSNorm(d, eps=1e-2)


@block()
def rms_norm_by_hand(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: m.w * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 0.01)), w=torch.randn(d))


@block(groups=(1, 2))
def group_norm(d: int, t: int, groups: int) -> nn.Module:
    return Functional(lambda m, x: m.a(x.mT).mT, a=nn.GroupNorm(groups, d, eps=1e-2))


@block(tracked=(False, True))
def instance_norm(d: int, t: int, tracked: bool) -> nn.Module:
    return nn.InstanceNorm1d(t, affine=True, track_running_stats=tracked, eps=1e-2)


@block(each=(False, True))
def prelu(d: int, t: int, each: bool) -> nn.Module:
    return Functional(lambda m, x: m.a(x.mT).mT, a=nn.PReLU(d if each else 1))


@block(first=(True, False), bias=(True, False), heads=(1, 2), weights=(False, True), extra=(False, True))
def attention(d: int, t: int, first: bool, bias: bool, heads: int, weights: bool, extra: bool) -> nn.Module:
    layer = nn.MultiheadAttention(d, heads, batch_first=first, bias=bias, add_bias_kv=extra, add_zero_attn=extra)

    def forward(m: Any, x: Tensor) -> Tensor:
        y = x if first else x.transpose(0, 1)
        y = m.a(y, y, y, need_weights=weights)[0]
        return y if first else y.transpose(0, 1)

    return Functional(forward, a=layer)


@block()
def cross_attention(d: int, t: int) -> nn.Module:
    """Learned queries, and keys of another width."""
    layer = nn.MultiheadAttention(d, 2, kdim=d // 2, vdim=d // 2, batch_first=True)

    def forward(m: Any, x: Tensor) -> Tensor:
        keys = x[..., : d // 2]
        return m.a(m.q.expand(len(x), -1, -1), keys, keys)[0]

    return Functional(forward, a=layer, q=torch.randn(1, t, d))


@block(first=(False, True))
def encoder(d: int, t: int, first: bool) -> nn.Module:
    return nn.TransformerEncoderLayer(d, 2, 2 * d, dropout=0.0, batch_first=True, norm_first=first, layer_norm_eps=1e-2)


@block(causal=(False, True), heads=(1, 2), written=("call", "products", "einsum"))
def attention_by_hand(d: int, t: int, causal: bool, heads: int, written: str) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        parts = m.qkv(x).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        if written == "call":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        else:
            pairs = q @ k.mT if written == "products" else torch.einsum("bhqd,bhkd->bhqk", q, k)
            hidden = torch.ones(t, t, dtype=torch.bool).triu(1) & causal
            shares = (pairs / math.sqrt(q.shape[-1])).masked_fill(hidden, float("-inf")).softmax(-1)
            y = shares @ v if written == "products" else torch.einsum("bhqk,bhkd->bhqd", shares, v)
        return m.out(y.transpose(1, 2).flatten(2))

    return Functional(forward, qkv=nn.Linear(d, 3 * d), out=nn.Linear(d, d))


@block()
def rotary(d: int, t: int) -> nn.Module:
    """Attention with rotated queries and keys, and one set of keys for all heads."""

    def forward(m: Any, x: Tensor) -> Tensor:
        angle = torch.arange(t, dtype=x.dtype)[:, None] * torch.ones(d // 2, dtype=x.dtype)

        def turned(y: Tensor) -> Tensor:
            one, two = y[..., ::2], y[..., 1::2]
            parts = one * angle.cos() - two * angle.sin(), one * angle.sin() + two * angle.cos()
            return torch.stack(parts, -1).flatten(-2)

        return (turned(m.q(x)) @ turned(m.k(x)).mT / d).softmax(-1) @ m.v(x)

    return Functional(forward, q=nn.Linear(d, d), k=nn.Linear(d, d), v=nn.Linear(d, d, bias=False))


@block(padding=(None, 0))
def lookup(d: int, t: int, padding: int | None) -> nn.Module:
    """A table of vectors, looked up by what a position holds."""
    return Functional(
        lambda m, x: x + m.table((x[..., 0] > 0).long() + 2 * (x[..., 1] > 0)), table=nn.Embedding(4, d, padding)
    )


@block()
def positions(d: int, t: int) -> nn.Module:
    """An embedding of the position's number."""
    return Functional(lambda m, x: x + m.table(torch.arange(t)), table=nn.Embedding(t + 1, d))


@block(lacks="second", mode=("mean", "sum"))
def bag(d: int, t: int, mode: str) -> nn.Module:
    return Functional(
        lambda m, x: x + m.table((x > 0).long().flatten(1)).unsqueeze(1), table=nn.EmbeddingBag(2, d, mode=mode)
    )


@block(cell=("GRU", "LSTM", "RNN"), layers=(1, 2), both=(False, True), first=(True, False))
def recurrent(d: int, t: int, cell: str, layers: int, both: bool, first: bool) -> nn.Module:
    layer = getattr(nn, cell)(d, d // 2 if both else d, layers, bidirectional=both, batch_first=first)

    def forward(m: Any, x: Tensor) -> Tensor:
        return m.a(x)[0] if first else m.a(x.transpose(0, 1))[0].transpose(0, 1)

    return Functional(forward, a=layer)


@block(cell=("GRUCell", "RNNCell"))
def unrolled(d: int, t: int, cell: str) -> nn.Module:
    """A cell in a loop over positions."""

    def forward(m: Any, x: Tensor) -> Tensor:
        state, states = torch.zeros_like(x[:, 0]), []
        for part in x.unbind(1):
            state = m.a(part, state)
            states.append(state)
        return torch.stack(states, 1)

    return Functional(forward, a=getattr(nn, cell)(d, d))


@block()
def state_space(d: int, t: int) -> nn.Module:
    """A diagonal linear recurrence, in place on a tensor of states."""

    def forward(m: Any, x: Tensor) -> Tensor:
        decay, states = torch.sigmoid(m.a), torch.zeros_like(x)
        for i in range(t):
            before = states[:, i - 1].clone() if i else torch.zeros_like(x[:, 0])
            states[:, i] = decay * before + m.b * x[:, i]
        return states @ m.c

    return Functional(forward, a=torch.randn(d), b=torch.randn(d), c=torch.randn(d, d))
