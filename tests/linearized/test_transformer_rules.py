"""The rules of attention and layer normalization give the tangents of plain forward mode, for every set of tangents."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

import tangentlab
from tangentlab.linearized._rules import RULES, _attention, _dense

SAMPLES, HEADS, QUERIES, KEYS, WIDTH = 3, 4, 5, 6, 2


def noise(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def compare(function: Callable[..., Tensor], values: list[Any], moved: tuple[bool, ...], **options: bool) -> None:
    """Compare value, tangent and gradients of a function's rule with its own; ``moved`` says what has a tangent."""
    results = []
    for rule in (False, True):
        leaves = [v.clone().requires_grad_(v.is_floating_point()) if isinstance(v, Tensor) else v for v in values]
        with forward_ad.dual_level(), sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH][not rule :]):
            arguments = [
                forward_ad.make_dual(leaf, noise(*leaf.shape, seed=100 + i)) if move and leaf is not None else leaf
                for i, (leaf, move) in enumerate(zip(leaves, moved, strict=True))
            ]
            y = RULES[function](function, *arguments, **options) if rule else function(*arguments, **options)
            value, tangent = forward_ad.unpack_dual(y)
            assert tangent is not None
        wanted = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]
        grads = torch.autograd.grad(value, wanted, noise(*value.shape, seed=1), allow_unused=True)
        results.append([value.detach(), tangent.detach(), *(g for g in grads if g is not None)])
    for one, two in zip(*results, strict=True):
        assert float((one - two).abs().max()) <= 1e-10 * max(1.0, float(one.abs().max()))


MASKS: dict[str, Tensor | None] = {
    "no mask": None,
    "one for all": noise(QUERIES, KEYS, seed=5),
    "per head": noise(HEADS, QUERIES, KEYS, seed=5),
    "one, four axes": noise(1, 1, QUERIES, KEYS, seed=5),
    "per sequence": noise(SAMPLES, 1, QUERIES, KEYS, seed=5) > -1,
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("at_once", [1, 2, SAMPLES])
def test_attention(mask: str, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sequence at a time, several, and all; in the memory format of networks, with heads beside each other."""
    monkeypatch.setattr(_attention, "_SCORES", at_once * HEADS * QUERIES * KEYS)
    lengths = (QUERIES, KEYS, KEYS)
    sizes = [(SAMPLES, length, HEADS, WIDTH) for length in lengths]
    values = [noise(*size, seed=i).transpose(1, 2) for i, size in enumerate(sizes)]
    for moved in itertools.product([False, True], repeat=3):
        if any(moved):
            compare(F.scaled_dot_product_attention, [*values, MASKS[mask]], (*moved, False))
    given = MASKS[mask]
    if given is not None and given.is_floating_point():
        compare(F.scaled_dot_product_attention, [*values, given], (False, False, False, True))


@pytest.mark.parametrize("shape", [(QUERIES, WIDTH), (HEADS, QUERIES, WIDTH), (2, SAMPLES, HEADS, QUERIES, WIDTH)])
def test_attention_with_other_numbers_of_axes(shape: tuple[int, ...]) -> None:
    values = [noise(*shape, seed=i) for i in range(3)]
    compare(F.scaled_dot_product_attention, [*values, None], (True, True, True, False), is_causal=True)


def test_attention_with_shared_keys() -> None:
    """Several queries share a key, and all sequences one key: the latter are not separated."""
    for samples, groups in ((SAMPLES, 2), (1, 1)):
        query = noise(SAMPLES, HEADS, QUERIES, WIDTH, seed=0)
        others = [noise(samples, HEADS // groups, KEYS, WIDTH, seed=i) for i in (1, 2)]
        options = {"enable_gqa": True} if groups > 1 else {}
        compare(F.scaled_dot_product_attention, [query, *others, None], (True, True, True, False), **options)


@pytest.mark.parametrize(("keys", "values"), [(2, 1), (1, HEADS), (HEADS, 2)])
def test_attention_with_other_numbers_of_values(keys: int, values: int) -> None:
    """PyTorch repeats keys and values each by their own number of heads."""
    query = noise(SAMPLES, HEADS, QUERIES, WIDTH, seed=0)
    others = [noise(SAMPLES, heads, KEYS, WIDTH, seed=heads) for heads in (keys, values)]
    compare(F.scaled_dot_product_attention, [query, *others, None], (True, True, True, False), enable_gqa=True)


def test_a_query_without_keys_has_no_tangent() -> None:
    mask = torch.ones(SAMPLES, 1, QUERIES, KEYS, dtype=torch.bool)
    mask[1, :, 2] = False
    parts = [noise(SAMPLES, HEADS, n, WIDTH, seed=n) for n in (QUERIES, KEYS, KEYS)]
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(part, torch.ones_like(part)) for part in parts]
        y = _attention.attention(F.scaled_dot_product_attention, *duals, mask)
        tangent = forward_ad.unpack_dual(y).tangent
    assert tangent is not None
    assert bool(tangent.isfinite().all())
    assert float(tangent[1, :, 2].abs().max()) == 0


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_layer_norm(shape: tuple[int, ...]) -> None:
    for scale, shift in itertools.product([False, True], repeat=2):
        values = [
            noise(5, 3, 4, seed=0),
            *(noise(*shape, seed=i) if given else None for i, given in enumerate((scale, shift))),
        ]
        for moved in itertools.product([False, True], repeat=3):
            if any(move and value is not None for move, value in zip(moved, values, strict=True)):
                compare(F.layer_norm, [values[0], shape, *values[1:]], (moved[0], False, *moved[1:]))


@pytest.mark.parametrize("shape", [(4,), (7, 4), (2, 3, 4)])
@pytest.mark.parametrize("fused", [False, True])
def test_linear(shape: tuple[int, ...], fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also as the convolution that is chosen for large products in float32 only."""
    monkeypatch.setattr(_dense, "onednn", lambda tensor: fused)
    monkeypatch.setattr(_dense, "_LARGE", 0)
    convolutions = []
    original = F.conv2d
    monkeypatch.setattr(_dense.F, "conv2d", lambda *args: convolutions.append(1) or original(*args))
    for bias in (None, noise(5, seed=2)):
        values = [noise(*shape, seed=0), noise(5, 4, seed=1), bias]
        for moved in itertools.product([False, True], repeat=3):
            if any(move and value is not None for move, value in zip(moved, values, strict=True)):
                compare(F.linear, values, moved)
    assert bool(convolutions) is (fused and len(shape) > 1)


@pytest.mark.parametrize("shape", [(7, 4), (2, 3, 4)])
def test_linear_with_one_output(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """A weight of one axis, whose output has one axis less."""
    monkeypatch.setattr(_dense, "onednn", lambda tensor: True)
    monkeypatch.setattr(_dense, "_LARGE", 0)
    for moved in ((True, False), (False, True), (True, True)):
        compare(F.linear, [noise(*shape, seed=0), noise(4, seed=1), None], (*moved, False))


def test_a_dense_layer_inside_of_vmap() -> None:
    """Rules take dual tensors apart, which PyTorch cannot do there: forward mode alone does it."""

    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.func.vmap(lambda row: torch.tanh(self.a(row)))(x)

    torch.manual_seed(0)
    model, x = Mapped().double(), torch.randn(5, 4, dtype=torch.float64)
    lin = tangentlab.linearize(model)
    base = {name: parameter.detach() for name, parameter in model.named_parameters()}
    moves = {name: torch.randn_like(parameter) for name, parameter in base.items()}
    with torch.no_grad():
        for name, parameter in lin.named_parameters():
            parameter.add_(moves[name])
    f, jd = torch.func.jvp(lambda w: torch.func.functional_call(model, w, (x,)), (base,), (moves,))
    assert torch.allclose(lin(x), f + jd, rtol=1e-12, atol=1e-12)
