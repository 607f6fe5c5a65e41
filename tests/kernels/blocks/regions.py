"""Regions without gradients, gradients of one's own, and parameters reached in unusual ways."""

from typing import Any

import torch
from torch import Tensor, nn

from tests.kernels.blocks._block import block
from tests.kernels.parts import Functional


@block(of=("detach", "no_grad", "data", "inference"))
def stopped(d: int, t: int, of: str) -> nn.Module:
    """A layer whose parameters get no gradient through one of its two uses."""

    def forward(m: Any, x: Tensor) -> Tensor:
        if of == "detach":
            quiet = m.a(x).detach()
        elif of == "data":
            quiet = x @ m.a.weight.data
        elif of == "inference":
            with torch.inference_mode():
                quiet = m.a(x).tanh()
            quiet = quiet.clone()
        else:
            with torch.no_grad():
                quiet = m.a(x).tanh()
        return quiet * 0.5 + m.a(x)

    return Functional(forward, a=nn.Linear(d, d))


@block()
def stopped_input(d: int, t: int) -> nn.Module:
    return Functional(lambda m, x: m.a(x.detach()) + x, a=nn.Linear(d, d))


@block(of=("round", "sign", "argmax"))
def straight_through(d: int, t: int, of: str) -> nn.Module:
    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x)
        if of == "argmax":
            hard = nn.functional.one_hot(y.argmax(-1), d).to(y)
            soft = y.softmax(-1)
            return hard + soft - soft.detach()
        hard = y.round() if of == "round" else y.sign()
        return y + (hard - y).detach()

    return Functional(forward, a=nn.Linear(d, d))


@block(lacks="forward", detached=(True, False))
def codebook(d: int, t: int, detached: bool) -> nn.Module:
    """The nearest of learned vectors, with the gradient passed to the input."""

    def forward(m: Any, x: Tensor) -> Tensor:
        with torch.no_grad():
            nearest = torch.cdist(x, m.table.weight.expand(len(x), -1, -1)).argmin(-1)
        code = m.table(nearest)
        return x + (code - x).detach() if detached else x + code

    return Functional(forward, table=nn.Embedding(5, d))


@block(fresh=False, lacks="forward", scaled=(False, True))
def own_function(d: int, t: int, scaled: bool) -> nn.Module:
    """A backward pass that is not the derivative of the forward pass."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            factor = 0.5 if scaled else 1.0
            return g @ w.mT, factor * torch.einsum("btd,bte->de", x, g)

    return Functional(lambda m, x: Product.apply(x, m.w), w=torch.randn(d, d))


@block(fresh=False, lacks="forward")
def reversed_gradient(d: int, t: int) -> nn.Module:
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return -0.5 * g

    return Functional(lambda m, x: m.a(Reverse.apply(m.a(x).tanh())), a=nn.Linear(d, d))


@block(refusable=("",))
def gradient_hook(d: int, t: int) -> nn.Module:
    """A hook that changes gradients on their way."""

    def forward(m: Any, x: Tensor) -> Tensor:
        y = m.a(x).tanh()
        if y.requires_grad:
            y.register_hook(lambda g: 0.5 * g)
        return m.b(y)

    return Functional(forward, a=nn.Linear(d, d), b=nn.Linear(d, d))


@block(refusable=("",), through=("lambda", "hook", "pre-hook", "default"))
def closure(d: int, t: int, through: str) -> nn.Module:
    """A parameter that the code reaches through a closure, which a copy of the module does not."""
    layer = nn.Linear(d, d)
    forwards = {"lambda": lambda m, x: m.a(x) * p, "default": lambda m, x, q=layer.bias: m.a(x) * q}
    module = Functional(forwards.get(through, lambda m, x: m.a(x)), a=layer, p=torch.randn(d))
    p = module.p
    if through == "hook":
        layer.register_forward_hook(lambda module, args, result: result * p)
    if through == "pre-hook":
        layer.register_forward_pre_hook(lambda module, args: (args[0] * p,))
    return module


@block()
def hooked(d: int, t: int) -> nn.Module:
    """A forward hook that needs nothing but what it is given."""
    layer = nn.Linear(d, d)
    layer.register_forward_hook(lambda module, args, result: result * module.bias + args[0])
    return layer


@block(refusable=("",), to=("the same", "another"))
def buffered(d: int, t: int, to: str) -> nn.Module:
    """A buffer that the forward pass assigns: what it was, or another value, with which there is no kernel."""

    def forward(m: Any, x: Tensor) -> Tensor:
        m.scale = m.scale.clone() if to == "the same" else m.scale * 1.01
        return m.a(x) * m.scale

    module = Functional(forward, a=nn.Linear(d, d))
    module.register_buffer("scale", torch.rand(d) + 0.5)
    return module


@block()
def constant_buffer(d: int, t: int) -> nn.Module:
    """A buffer that masks a weight."""
    module = Functional(lambda m, x: nn.functional.linear(x, m.a.weight * m.mask, m.a.bias), a=nn.Linear(d, d))
    module.register_buffer("mask", (torch.rand(d, d) > 0.4).double())
    return module


@block()
def partly_frozen(d: int, t: int) -> nn.Module:
    layer = nn.Linear(d, d)
    layer.weight.requires_grad_(False)
    return layer
