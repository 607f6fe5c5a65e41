"""The problem: a network, samples, and what is computed from them. Making one does not run the network."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from tangentlab._errors import TangentError
from tangentlab.kernels._cost import Work
from tangentlab.kernels._inputs import Samples
from tangentlab.kernels._network import Network
from tangentlab.kernels._options import Options


@dataclass(frozen=True)
class Problem:
    """A network, samples, and what their factors are for.

    Attributes:
        network: The network with its readout.
        samples: One set of samples, or those of the rows and those of the columns.
        options: What the user chose.
        work: What the factors are for.
    """

    network: Network
    samples: tuple[Samples, ...]
    options: Options
    work: Work

    @classmethod
    def pose(
        cls,
        model: nn.Module,
        x1: Any,
        x2: Any = None,
        options: Options | None = None,
        *,
        kind: Literal["gram", "operator", "diagonal", "sketch"],
        features: int = 0,
        by_layer: bool = False,
    ) -> "Problem":
        """Return the problem that a user's arguments describe.

        Args:
            model: The module.
            x1: Samples of the rows.
            x2: Samples of the columns; None for the same.
            options: What the user chose; None for the defaults.
            kind: What the factors are for, see :class:`Work`.
            features: Length of a sketch.
            by_layer: Whether layers are kept apart.

        Raises:
            TangentError: A model, samples or options that a kernel cannot be computed from.
        """
        options = options or Options()
        network = Network(
            model,
            options.readout,
            parameters=options.parameters,
            output=options.output,
            dtype=options.dtype,
            device=options.device,
        )
        targets = paired(options.targets, x1, x2)
        symmetric = x2 is None or (x2 is x1 and targets[0] is targets[1])
        samples = tuple(
            Samples(
                x,
                name=name,
                device=network.device,
                dtype=network.cast,
                input=options.input,
                model=model,
                targets=own,
                labeled=network.takes_targets,
            )
            for name, x, own in (("x1", x1, targets[0]), ("x2", x2, targets[1]))
            if name == "x1" or not symmetric
        )
        work = Work(kind, len(samples[0]), len(samples[-1]), symmetric, features, by_layer)
        return cls(network, samples, options, work)

    def sized(self, samples: int) -> "Problem":
        """Return the problem of that many samples with themselves, to learn from a few what many will cost."""
        return replace(self, work=replace(self.work, kind="gram", rows=samples, columns=samples, symmetric=True))


def paired(targets: Any, x1: Any, x2: Any) -> tuple[Any, Any]:
    """Return the targets of the rows and those of the columns, None for those that come with the samples.

    Raises:
        TangentError: Two sets of samples have one set of targets, or the other way round.
    """
    if x2 is None or (x2 is x1 and not isinstance(targets, tuple)):
        return targets, targets
    if targets is None:
        return None, None
    if not isinstance(targets, tuple) or len(targets) != 2:
        raise TangentError(
            "There are two sets of samples, and targets= is not a pair.",
            "Each set has targets of its own.",
            "Pass targets=(targets1, targets2); None stands for the targets that come with the samples.",
        )
    return targets
