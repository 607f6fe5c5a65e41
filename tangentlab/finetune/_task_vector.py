"""Task vectors: displacements of a network's weights that can be added, scaled and negated."""

import copy
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._files import write_bytes
from tangentlab._reading import Unreadable
from tangentlab._sums import inner
from tangentlab._tensor_files import load_weights, safetensors_bytes
from tangentlab.linearized import Linearized

Weights = nn.Module | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True)
class TaskVector:
    r"""A displacement of weights, :math:`\tau = \theta_{finetuned} - \theta_{base}`, by the names of a ``state_dict``.

    Task vectors of one network form a vector space: ``a + b``, ``a - b``, ``-a``, ``0.5 * a`` and ``sum([a, b])``. A
    name that only one of two vectors has counts as zero in the other. For linearized models the arithmetic is exact,

    .. math:: f(x; \theta_0 + a \tau_1 + b \tau_2) = f_0(x) + a\,J(x)\,\tau_1 + b\,J(x)\,\tau_2 .

    Attributes:
        tensors: The displacement of each weight.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> moved = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> vector = finetune.TaskVector.between(network, moved)
        >>> half = (0.5 * vector).apply(network)
        >>> type(half).__name__
        'Sequential'

    See also:
        :func:`tangentlab.finetune.addition`, :func:`tangentlab.finetune.negation`.
    """

    tensors: Mapping[str, Tensor]

    @classmethod
    def between(cls, base: Weights, finetuned: Weights) -> "TaskVector":
        """Compute the difference of two sets of weights.

        All floating-point entries of the state dicts count, running statistics of normalization included.

        Args:
            base: The weights before fine-tuning: a network, a state dict, or a file with one (``torch.save`` or
                ``.safetensors``).
            finetuned: The weights after it, in the same forms.

        Raises:
            TangentError: The two have different names or shapes.
        """
        one, two = _floating(base), _floating(finetuned)
        different = sorted(one.keys() ^ two.keys())
        different += sorted(name for name in one.keys() & two.keys() if one[name].shape != two[name].shape)
        if different:
            raise TangentError(
                f"The two networks differ in {len(different)} names or shapes: {', '.join(different[:3])}.",
                why="A task vector is the difference of the weights of one architecture.",
                remedy="Remove parts that only one task has (its classifier, for example) from both state dicts.",
            )
        return cls({name: two[name].to(one[name]) - one[name] for name in one})

    @classmethod
    def of(cls, linearized: Linearized) -> "TaskVector":
        """Return the displacement theta - theta0 of a linearized model, of the parameters that it trains or moved."""
        if not isinstance(linearized, Linearized):
            raise TangentError(
                f"{type(linearized).__name__} is not linearized.",
                remedy="Use TaskVector.between(base, finetuned) for networks.",
            )
        trained = {name for name, p in linearized.named_parameters() if p.requires_grad}
        moved = linearized.displacement()
        return cls({name: d for name, d in moved.items() if name in trained or bool(d.any())})

    # The vector space

    def __add__(self, other: "TaskVector") -> "TaskVector":
        if not isinstance(other, TaskVector):
            return NotImplemented
        self._fits(other)
        result = dict(self.tensors)
        for name, tensor in other.tensors.items():
            result[name] = result[name] + tensor if name in result else tensor
        return TaskVector(result)

    def __radd__(self, other: Any) -> "TaskVector":
        return self if other == 0 else NotImplemented  # sum() begins with 0

    def __sub__(self, other: "TaskVector") -> "TaskVector":
        return self + -other if isinstance(other, TaskVector) else NotImplemented

    def __neg__(self) -> "TaskVector":
        return self._map(lambda tensor: -tensor)

    def __mul__(self, scale: float) -> "TaskVector":
        if isinstance(scale, TaskVector):
            raise TangentError("Task vectors cannot be multiplied.", remedy="Use one.dot(other) for the inner product.")
        return self._map(lambda tensor: tensor * float(scale))

    __rmul__ = __mul__

    def __truediv__(self, scale: float) -> "TaskVector":
        return self._map(lambda tensor: tensor / float(scale))

    def dot(self, other: "TaskVector") -> float:
        """Compute the inner product over all weights, in float64."""
        self._fits(other)
        shared = self.tensors.keys() & other.tensors.keys()
        return math.fsum(float(inner(self.tensors[n], other.tensors[n])) for n in sorted(shared))

    def norm(self) -> float:
        """Compute the Euclidean norm over all weights."""
        return math.sqrt(self.dot(self))

    def cosine(self, other: "TaskVector") -> float:
        """Compute the cosine of the angle between two task vectors; small between unrelated tasks."""
        sizes = self.norm() * other.norm()
        if not sizes:
            raise TangentError("A task vector is zero.", why="It has no direction.", remedy="Check its fine-tuning.")
        return self.dot(other) / sizes

    def without(self, *patterns: str) -> "TaskVector":
        """Remove the weights whose names match a pattern, such as ``"classifier.*"``.

        Raises:
            TangentError: A pattern matches no name.
        """
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.tensors):
                raise TangentError(f"No weight is named {pattern!r}.", remedy=f"Names are like {self._example()}.")
        kept = (n for n in self.tensors if not any(fnmatchcase(n, pattern) for pattern in patterns))
        return TaskVector({name: self.tensors[name] for name in kept})

    def apply(self, model: nn.Module, scale: float = 1.0) -> Any:
        """Add the vector to the weights of a copy of a model: theta + scale tau.

        Args:
            model: A network, or a linearized model, whose displacement is moved. It is not changed.
            scale: The factor of the vector.

        Returns:
            The copy.

        Raises:
            TangentError: The model lacks a weight of the vector, or has it in another shape; or a running variance
                would become negative.
        """
        self.check(model)
        twin = copy.deepcopy(model) if isinstance(model, Linearized) else copy_model(model)
        self.move(twin, scale)
        return twin

    def move(self, model: nn.Module, scale: float = 1.0) -> None:
        """Add scale tau to the weights of a model in place; see :meth:`apply`."""
        with torch.no_grad():
            for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
                if name in self.tensors:
                    tensor.add_(self.tensors[name].to(tensor), alpha=scale)
        for name, module in model.named_modules():
            variance = module.running_var if isinstance(module, _NormBase) else None
            if variance is not None and bool((variance < 0).any()):
                raise TangentError(
                    f"The running variance of {name!r} would be negative.",
                    why="The vector has the change of running statistics, which is not meaningful at every scale.",
                    remedy="Leave it out: vector.without('*running_mean', '*running_var').",
                )

    def check(self, model: nn.Module) -> None:
        """Refuse a model that lacks a weight of the vector, or has it in another shape."""
        pairs = [*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False)]
        shapes = {name: tensor.shape for name, tensor in pairs}
        odd = [name for name, tensor in self.tensors.items() if shapes.get(name) != tensor.shape]
        if odd:
            raise TangentError(
                f"The model lacks {len(odd)} weights of the task vector, or has them in another shape: "
                f"{', '.join(odd[:3])}.",
                why="A task vector belongs to one architecture.",
                remedy="Give the network that was fine-tuned, or leave those out: vector.without('classifier.*').",
            )

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the vector as ``.safetensors``, completely or not at all.

        Raises:
            TangentError: The package safetensors is not installed, or the file cannot be written.
        """
        content = safetensors_bytes(self.tensors, {"format": "pt", "kind": "task vector"})
        write_bytes(Path(path), lambda file: file.write(content))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "TaskVector":
        """Read a vector from ``.safetensors``.

        Raises:
            TangentError: The file is damaged, or the package safetensors is not installed.
        """
        return cls(_floating(path, "task vector"))

    # Helpers

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __str__(self) -> str:
        count = sum(tensor.numel() for tensor in self.tensors.values())
        return f"task vector of {len(self.tensors)} tensors, {count:,} weights, norm {self.norm():.4g}"

    __repr__ = __str__

    def _map(self, function: Callable[[Tensor], Tensor]) -> "TaskVector":
        return TaskVector({name: function(tensor) for name, tensor in self.tensors.items()})

    def _example(self) -> str:
        return repr(next(iter(self.tensors), ""))

    def _fits(self, other: "TaskVector") -> None:
        for name in self.tensors.keys() & other.tensors.keys():
            if self.tensors[name].shape != other.tensors[name].shape:
                raise TangentError(
                    f"The two task vectors have {name!r} in different shapes.",
                    why="They belong to different architectures.",
                    remedy="Leave it out of both: vector.without('classifier.*').",
                )


def _floating(weights: Weights, what: str = "weights") -> dict[str, Tensor]:
    """Return copies of the floating-point tensors of weights in any of the accepted forms. Tied ones occur once."""
    state: Any = weights
    if isinstance(weights, nn.Module):
        named = [*weights.named_parameters(), *weights.named_buffers()]
        kept = weights.state_dict().keys()
        state = {name: tensor for name, tensor in named if name in kept}
    elif isinstance(weights, str | os.PathLike):
        path = Path(weights)
        try:
            state = load_weights(path)
        except Unreadable as error:
            raise TangentError(f"The {what} {str(path)!r} {error}.", remedy="Restore the file from a copy.") from error
    if not isinstance(state, Mapping):
        raise TangentError(
            f"{type(state).__name__} has no weights.", remedy="Give a network, a state dict or a file with one."
        )
    tensors = {n: t.detach().clone() for n, t in state.items() if isinstance(t, Tensor) and t.is_floating_point()}
    if not tensors:
        raise TangentError("There are no floating-point weights.", remedy="Give a network or its state dict.")
    return tensors
