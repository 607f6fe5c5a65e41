"""Random networks from a grammar: one description, drawn by hypothesis or by a seed, and made simpler step by step.

A description is plain data. It is a chain of blocks on (B, T, D) (see :mod:`tests.kernels.blocks`), each followed by
an activation and joined with what came before; blocks may be used again, share weights or be frozen. What comes in is
rows, tokens or both, what goes out is a vector or has several axes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.kernels.blocks import BLOCKS
from tests.kernels.parts import shaken

Choose = Callable[[Sequence[Any]], Any]

ACTIVATIONS = ("none", "relu", "tanh", "gelu", "silu", "leaky", "sine", "softplus", "in place")
JOINS = ("chain", "residual", "in place", "gate", "half", "mean", "detached", "quiet", "where", "concat")
ENTRIES = ("rows", "tokens", "pair", "mixed")
EXITS = ("flat", "pool", "positions", "bare", "tied", "image", "number")
VOCABULARY = 5


@dataclass(frozen=True)
class Step:
    """One block of a network.

    Attributes:
        kind: Its name in ``BLOCKS``.
        options: Its options.
        activation: What follows it.
        join: How its result meets its input.
        again: The number of an earlier step whose very module is applied again, or None.
        tied: The number of an earlier step with which parameters of equal shape are shared, or None.
        frozen: Whether its parameters require no gradients.
    """

    kind: str
    options: dict[str, Any] = field(default_factory=dict)
    activation: str = "none"
    join: str = "chain"
    again: int | None = None
    tied: int | None = None
    frozen: bool = False


@dataclass(frozen=True)
class Architecture:
    """A network and its samples.

    Attributes:
        steps: The blocks.
        seed: Of weights and samples.
        positions: T.
        features: D.
        outputs: O, or what it is made of where outputs have several axes.
        samples: N.
        entry: What comes in.
        exit: What goes out.
    """

    steps: tuple[Step, ...]
    seed: int = 0
    positions: int = 1
    features: int = 4
    outputs: int = 1
    samples: int = 2
    entry: str = "rows"
    exit: str = "pool"


class Network(nn.Module):
    """The network of a description.

    Args:
        architecture: The description.
        backwards: Register the blocks in reverse order, which changes nothing but the order of the parameters.
    """

    def __init__(self, architecture: Architecture, backwards: bool = False) -> None:
        super().__init__()
        self.architecture, d, t = architecture, architecture.features, architecture.positions
        made: dict[int, nn.Module] = {}
        for number, step in enumerate(architecture.steps):
            if step.again is None:
                torch.manual_seed(1000 * architecture.seed + number)
                made[number] = shaken(BLOCKS[step.kind].make(d, t, **step.options))
                for parameter in made[number].parameters() if step.frozen else ():
                    parameter.requires_grad_(False)
        for number, step in enumerate(architecture.steps):
            if number in made and step.tied in made:
                tie(made[number], made[step.tied])
        order = sorted(made, reverse=backwards)
        self.blocks = nn.ModuleDict({f"{architecture.steps[i].kind}{i}": made[i] for i in order})
        torch.manual_seed(1000 * architecture.seed + 999)
        if architecture.entry in ("tokens", "mixed"):
            self.embedding = nn.Embedding(VOCABULARY, d)
        if architecture.entry in ("pair", "mixed"):
            self.second = nn.Linear(d, d)
        match architecture.exit:
            case "flat":
                self.out: Any = nn.Linear(t * d, architecture.outputs)
            case "bare":
                self.out = nn.Parameter(1 + 0.1 * torch.randn(()))
            case _:
                self.out = nn.Linear(d, architecture.outputs)

    def module(self, number: int) -> nn.Module:
        """The module of a step."""
        step = self.architecture.steps[number]
        return self.blocks[f"{step.kind}{number}"] if step.again is None else self.module(step.again)

    def forward(self, x: Tensor, second: Tensor | None = None) -> Tensor:
        if hasattr(self, "embedding"):
            x = self.embedding(x)
        if second is not None:
            x = x + self.second(second).unsqueeze(1)
        for number, step in enumerate(self.architecture.steps):
            with torch.set_grad_enabled(torch.is_grad_enabled() and step.join != "quiet"):
                y = self.module(number)(x)
                y = activate(step.activation, y if BLOCKS[step.kind].fresh else y + 0)
            x = join(step.join, x, y)
        return self.leave(x)

    def leave(self, x: Tensor) -> Tensor:
        match self.architecture.exit:
            case "flat":
                return self.out(x.flatten(1))
            case "positions":
                return self.out(x)
            case "bare":
                return x.flatten(1)[:, : self.architecture.outputs] * self.out
            case "tied" if hasattr(self, "embedding"):
                return torch.cat([F.linear(x.mean(1), self.embedding.weight), self.out(x[:, 0])], 1)
            case "image":
                return self.out(x).mT.unsqueeze(-1)
            case "number":
                return self.out(x).mean((1, 2))
        return self.out(x.mean(1))


def tie(module: nn.Module, other: nn.Module) -> None:
    """Every parameter of ``module`` that has the shape of one of ``other`` becomes that one."""
    theirs = {p.shape: p for name, p in other.named_parameters() if "parametrizations" not in name}
    for owner in list(module.modules()):
        if isinstance(owner, torch.jit.ScriptModule | nn.utils.parametrize.ParametrizationList):
            continue
        for name, parameter in list(owner.named_parameters(recurse=False)):
            if parameter.shape in theirs:
                setattr(owner, name, theirs[parameter.shape])


def activate(name: str, y: Tensor) -> Tensor:
    match name:
        case "relu":
            return torch.relu(y)
        case "tanh":
            return torch.tanh(y)
        case "gelu":
            return F.gelu(y)
        case "silu":
            return F.silu(y)
        case "leaky":
            return F.leaky_relu(y, 0.3)
        case "sine":
            return torch.sin(y)
        case "softplus":
            return F.softplus(y)
        case "in place":
            return F.leaky_relu(y, 0.2, inplace=True)
    return y


def join(name: str, x: Tensor, y: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    match name:
        case "residual":
            return x + y
        case "in place":
            return (y * 0.5).add_(x)
        case "gate":
            return x * torch.sigmoid(y)
        case "half":
            return torch.cat([x[..., :half], y[..., half:]], -1)
        case "concat":
            return torch.cat([x, y], -1).unflatten(-1, (2, -1)).sum(-2)
        case "mean":
            return torch.stack([x, y]).mean(0)
        case "detached":
            return x.detach() + y
        case "quiet":
            return x + y
        case "where":
            return torch.where(x > 0, x, y)
    return y


def build(
    architecture: Architecture, dtype: torch.dtype = torch.float64, backwards: bool = False
) -> tuple[Network, Any]:
    """The network in evaluation mode and its samples, the same at every call; torch's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        model = Network(architecture, backwards).to(dtype).eval()
        torch.manual_seed(architecture.seed)
        n, t, d = architecture.samples, architecture.positions, architecture.features
        rows, second = torch.randn(n, t, d).to(dtype), torch.randn(n, d).to(dtype)
        tokens = torch.randint(0, VOCABULARY, (n, t))
    samples = {
        "rows": rows,
        "tokens": tokens,
        "pair": (rows, second),
        "mixed": {"x": tokens, "second": second},
    }
    return model, samples[architecture.entry]


def take(x: Any, chosen: Any) -> Any:
    """Some samples, of all inputs."""
    if isinstance(x, Tensor):
        return x[chosen]
    if isinstance(x, dict):
        return {name: part[chosen] for name, part in x.items()}
    return tuple(part[chosen] for part in x)


def refusable(architecture: Architecture, name: str) -> bool:
    """Whether a clear refusal is a right answer to a property."""
    kinds = [step.kind for step in architecture.steps]
    # torch.jit unties what it copies, and such a copy is refused.
    untied = "scripted" in kinds and any(step.tied is not None for step in architecture.steps)
    neither = name.startswith("linearized") and {"forward", "second"} <= {BLOCKS[kind].lacks for kind in kinds}
    return untied or neither or any(name.startswith(BLOCKS[kind].refusable) for kind in kinds)


def draw(choose: Choose, seed: int, kinds: Sequence[str] | None = None, longest: int = 4) -> Architecture:
    """A description, with every choice made by ``choose``, which takes one of a sequence."""
    kinds, steps = kinds or sorted(BLOCKS), []
    for number in range(choose(range(1, longest + 1))):
        earlier = [i for i, step in enumerate(steps) if step.again is None]
        before = choose([None, None, None, *earlier])
        if before is not None and choose((False, True)):
            step = replace(steps[before], again=before, tied=None)
        else:
            kind = choose(kinds)
            options = {name: choose(values) for name, values in BLOCKS[kind].options.items()}
            step = Step(kind, options, tied=before, frozen=number > 0 and choose(range(8)) == 7)
        steps.append(replace(step, activation=choose(ACTIVATIONS), join=choose(JOINS)))
    return Architecture(
        tuple(steps),
        seed,
        positions=choose((1, 2, 3, 4)),
        features=choose((4, 6, 12)),
        outputs=choose((1, 2, 3)),
        samples=choose((2, 1, 3, 4, 5, 6, 9)),
        entry=choose(ENTRIES),
        exit=choose(EXITS),
    )


def simpler(architecture: Architecture) -> Iterator[Architecture]:
    """Descriptions that are one change simpler, the largest changes first."""
    steps = architecture.steps
    for number in range(len(steps) if len(steps) > 1 else 0):
        yield replace(architecture, steps=_without(steps, number))
    for name, value in (("samples", 1), ("samples", 2), ("samples", 3), ("outputs", 1), ("outputs", 2)):
        if value < getattr(architecture, name):
            yield replace(architecture, **{name: value})
    for name, plain in (("positions", 1), ("positions", 2), ("features", 4), ("features", 6)):
        if plain < getattr(architecture, name):
            yield replace(architecture, **{name: plain})
    for name, plain in (("entry", "rows"), ("exit", "pool"), ("exit", "bare")):
        if getattr(architecture, name) not in (plain, "pool"):
            yield replace(architecture, **{name: plain})
    for number, step in enumerate(steps):
        for other in _simpler_steps(step):
            yield replace(architecture, steps=(*steps[:number], other, *steps[number + 1 :]))


def _without(steps: tuple[Step, ...], gone: int) -> tuple[Step, ...]:
    """The steps without one; those that referred to it stand on their own."""

    def moved(reference: int | None) -> int | None:
        return None if reference is None or reference == gone else reference - (reference > gone)

    kept = (step for number, step in enumerate(steps) if number != gone)
    return tuple(replace(step, again=moved(step.again), tied=moved(step.tied)) for step in kept)


def _simpler_steps(step: Step) -> Iterator[Step]:
    plain = {"activation": "none", "join": "chain", "tied": None, "frozen": False, "again": None}
    for name, value in plain.items():
        if getattr(step, name) != value:
            yield replace(step, **{name: value})
    for name, values in BLOCKS[step.kind].options.items():
        if step.options[name] != values[0] and step.again is None:
            yield replace(step, options=step.options | {name: values[0]})
