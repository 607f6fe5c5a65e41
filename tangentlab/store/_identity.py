"""What a network computes, beyond its weights; a store compares it to recognize its network.

Equal weights in equal classes may be another function: another activation, padding, set of frozen layers, hook or
``output=``. Four things are kept and compared, each of which detects differences that the others miss:

- the parameters that count, and the frozen ones;
- the structure: the model's ``repr``, and the attributes of every module;
- the code: of the classes' methods, of hooks, of ``output=`` and of a function as ``readout=``, for branches that only
  other samples take;
- the behavior: readouts and kernel of a few samples (:mod:`tangentlab.store._behavior`).
"""

import difflib
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab.kernels.internal import Plan, ReadoutLike
from tangentlab.store._behavior import Behavior, chosen_samples, observe
from tangentlab.store._digest import UNIMPORTANT, Digest, origin, sha

_BASE = frozenset(vars(nn.Module()))
"""Attributes that every module has: weights have a hash of their own, hooks are compared separately."""
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
_NOT_RUN = frozenset(
    "__init__ __new__ __repr__ __str__ __getstate__ __setstate__ __reduce__ __deepcopy__ __dir__".split()
)
"""Methods that no forward pass calls."""
_SHOWN = 3

Attributes = dict[str, dict[str, str]]
"""A digest of every attribute, by module and name."""


@dataclass(frozen=True)
class Identity:
    """A description of what a network computes.

    Attributes:
        tracked: Names and shapes of the parameters that count, in order.
        frozen: Those of all other parameters; a tied one as "name = first name".
        training: Modules in training mode: "none", "all" or their names.
        structure: The model's ``repr``, without addresses in memory.
        modules: For every module, a digest of its class's name, its attributes and its hooks.
        changing: Attributes that a forward pass changes (counters, caches); they are left out of ``modules``.
        code: For every method that a forward pass may run, for ``output`` and for ``readout``, a digest of its code.
        python: The version of Python of the bytecode; that of other versions cannot be compared.
        behavior: Readouts and kernel of a few samples.
    """

    tracked: tuple[str, ...]
    frozen: tuple[str, ...]
    training: str
    structure: str
    modules: dict[str, str]
    changing: tuple[str, ...]
    code: dict[str, str]
    python: str
    behavior: Behavior

    def to_json(self) -> dict[str, Any]:
        """Convert to plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Any) -> "Identity":
        """Build an identity from plain values.

        Raises:
            KeyError, TypeError, ValueError: The values do not describe an identity.
        """
        known: dict[str, Any] = {name: content[name] for name in ("training", "structure", "python")}
        known |= {name: tuple(content[name]) for name in ("tracked", "frozen", "changing")}
        known |= {name: dict(content[name]) for name in ("modules", "code")}
        parts = [part for value in known.values() for part in ([value] if isinstance(value, str) else value)]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError("the identity of the network is damaged")
        return cls(**known, behavior=Behavior.from_json(content["behavior"]))

    def differences(self, other: "Identity") -> list[str]:
        """Describe in words how two networks differ; "there" is this one."""
        found = [
            *_other_names("parameters that count", self.tracked, other.tracked),
            *_other_names("other parameters", self.frozen, other.frozen),
        ]
        if self.training != other.training:
            found.append(f"modules in training mode: {self.training} there, {other.training} here")
        if self.structure != other.structure:
            found.append(f"structure: {_other_lines(self.structure, other.structure)}")
        if modules := _other_keys(self.modules, other.modules):
            found.append(f"class, attributes or hooks of {_few([name or 'the model' for name in modules])}")
        if self.python == other.python and (code := _other_keys(self.code, other.code)):
            found.append(f"the code of {_few(code)}, or of something that it uses")
        return found + self.behavior.differences(other.behavior)

    def warn_of(self, other: "Identity", where: object) -> None:
        """Warn about what could not be compared."""
        if self.python != other.python:
            warnings.warn(
                f"{where} was started with Python {self.python}, this is {other.python}: the code of the model cannot "
                "be compared. Weights, structure and the kernel of a few samples are.",
                stacklevel=5,
            )


def identify(
    kernel_plan: Plan,
    readout: ReadoutLike,
    output: Callable[[Any], Tensor] | None,
    samples: int,
    before: Attributes | None = None,
    stored: Identity | None = None,
) -> Identity:
    """Compute the identity of the network whose kernel is about to be computed.

    Args:
        kernel_plan: How the kernel is computed.
        readout: As the user passed it.
        output: As the user passed it.
        samples: The number of samples that the store started with.
        before: The attributes before the network ran, which show those that it changes.
        stored: The identity that this one will be compared with.
    """
    model, tracked = kernel_plan.network.model, kernel_plan.network.parameters
    which = () if stored is None else stored.behavior.samples
    if not which or which[-1] >= len(kernel_plan.left.samples):  # fewer than stored: refused in any case
        which = chosen_samples(samples)
    behavior = observe(kernel_plan, readout, output, which)
    digest = Digest({id(module): name for name, module in model.named_modules()})
    now = _attributes(model, digest)
    counted = {":".join(name.rpartition(".")[::2]) for name in kernel_plan.network.harmless}
    changing = tuple(sorted({*_changed(before or now, now), *counted})) if stored is None else stored.changing
    training = [name or "the model" for name, module in model.named_modules() if module.training]
    everything = len(training) == sum(1 for _ in model.modules())
    code = _code(model, {"output": output, "readout": readout if callable(readout) else None}, digest)
    return Identity(
        tracked=tuple(f"{name} {tuple(p.shape)}" for name, p in tracked.items()),
        frozen=tuple(_others(model, set(tracked))),
        training="all" if everything else ", ".join(training) or "none",
        structure=_written(model),
        modules={
            name: sha(*(f"{key} {part}" for key, part in sorted(parts.items()) if f"{name}:{key}" not in changing))
            for name, parts in now.items()
        },
        changing=changing,
        code=code,
        python=f"{sys.implementation.cache_tag}",
        behavior=behavior,
    )


def attributes(model: nn.Module) -> Attributes:
    """Digest what modules hold apart from weights, buffers and other modules."""
    return _attributes(model, Digest({id(module): name for name, module in model.named_modules()}))


def _attributes(model: nn.Module, digest: Digest) -> Attributes:
    found: Attributes = {}
    for name, module in model.named_modules():
        parts = {key: digest(value) for key, value in vars(module).items() if key not in _BASE}
        # Hooks are stored under numbers that depend on what else the program registered.
        parts.update({key: digest(list(getattr(module, key, {}).values())) for key in _HOOKS})
        if isinstance(module, torch.jit.ScriptModule):
            parts = {"code": digest.of_script(module)}
        parts["class"] = type(module).__name__
        found[name] = parts
    return found


def _changed(before: Attributes, now: Attributes) -> tuple[str, ...]:
    """List the attributes that have changed, as "module:attribute"."""
    return tuple(
        f"{name}:{key}"
        for name, parts in now.items()
        for key in sorted({*parts, *before.get(name, {})})
        if parts.get(key) != before.get(name, {}).get(key)
    )


def _others(model: nn.Module, tracked: set[str]) -> Iterator[str]:
    """List parameters that do not count: frozen ones, and second names of tied ones."""
    first: dict[int, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner = first.setdefault(id(parameter), name)
        if owner != name:
            yield f"{name} = {owner}"
        elif name not in tracked:
            yield f"{name} {tuple(parameter.shape)}"


def _written(model: nn.Module) -> str:
    try:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(model))
    except Exception:  # a user's repr may fail; the attributes are compared anyway
        return type(model).__name__


def _code(model: nn.Module, functions: dict[str, Any], digest: Digest) -> dict[str, str]:
    """Digest the methods that a forward pass may run: ``forward``, and whatever the visited code mentions.

    A name that code mentions is looked up in every class of the model: ``self.block.encode(x)`` may mean any
    ``encode``. The loss, the optimizer and the logging of a training framework's module may therefore change.
    """
    found = {name: [digest(function)] for name, function in functions.items() if function is not None}
    kinds = {
        kind for module in model.modules() for kind in type(module).__mro__ if origin(kind.__module__) != "language"
    }
    members = [(kind, name) for kind in kinds for name in vars(kind)]
    members.sort(key=lambda pair: (pair[0].__name__, pair[1]))
    done: set[tuple[type, str]] = set()
    while True:
        met = [pair for pair in members if pair not in done and _may_run(pair[1], digest.names)]
        if not met:
            return {name: " ".join(sorted(parts)) for name, parts in sorted(found.items())}
        for kind, name in met:
            done.add((kind, name))
            found.setdefault(f"{kind.__name__}.{name}", []).append(digest(vars(kind)[name]))


def _may_run(name: str, mentioned: set[str]) -> bool:
    if name.startswith("__") and name.endswith("__"):  # operators call these by themselves
        return name not in _NOT_RUN | UNIMPORTANT
    return name == "forward" or name in mentioned


def _other_keys(one: dict[str, str], two: dict[str, str]) -> list[str]:
    return [name for name in {**one, **two} if one.get(name) != two.get(name)]


def _other_names(what: str, one: tuple[str, ...], two: tuple[str, ...]) -> list[str]:
    if one == two:
        return []
    there, here = ([name for name in a if name not in b] for a, b in ((one, two), (two, one)))
    if not there and not here:
        return [f"{what}: in another order"]
    return [f"{what}: {_few(there) or 'no other'} there, {_few(here) or 'no other'} here"]


def _other_lines(one: str, two: str) -> str:
    changes = list(difflib.unified_diff(one.splitlines(), two.splitlines(), n=0, lineterm=""))[2:]
    there, here = ([line[1:].strip() for line in changes if line.startswith(sign)] for sign in "-+")
    return f"{_few(there) or 'nothing more'} there, {_few(here) or 'nothing more'} here"


def _few(names: list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
