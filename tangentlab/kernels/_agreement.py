"""Whether the rules give the gradients of plain automatic differentiation, parameter by parameter.

A sample is differentiated alone, in a pass that nothing watches, and its gradients by the rules are those of its place
in a batch with others. So a wrong rule shows, and so does a right one that is applied to another sample's rows.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._sums import quick_distance, quick_inner, quick_norm
from tangentlab.kernels._findings import FirstBatch, Probed
from tangentlab.kernels._gradients import parameter_gradients
from tangentlab.kernels._network import Network
from tangentlab.kernels._record import SeenUse

_MOST = 3
"""Samples that are compared, at most."""
_SHARE = 16
"""Samples for each one that is compared, if the network is large: few samples take little longer than a comparison."""
_SMALL = 1 << 20
"""Parameters of a network for which as many as possible are compared, however few samples there are."""
_FURTHER = 2
"""Further samples that are compared if the gradient of some parameter is zero for those before."""
_KINKS = 5e-2
"""Relative disagreement that units at their kinks may explain; only double precision tells, see :mod:`._kinks`."""

Gradients = dict[str, Tensor | None]


def check_numbers(parameters: dict[str, Tensor]) -> int:
    """Return how many numbers the comparison holds: all gradients of two samples, and a parameter's of one more."""
    sizes = [p.numel() for p in parameters.values()]
    return 2 * sum(sizes) + max(sizes)


def compared_samples(parameters: dict[str, Tensor], count: int) -> int:
    """Return how many of N samples are compared."""
    small = sum(p.numel() for p in parameters.values()) <= _SMALL
    return min(_MOST, count, _MOST if small else max(1, count // _SHARE))


class Agreement:
    """The comparison of a few samples, and what it says about their kernel.

    Args:
        network: The network.
        count: N.
        tolerance: Relative disagreement that is still rounding.
    """

    def __init__(self, network: Network, count: int, tolerance: float) -> None:
        self.network, self.tolerance = network, tolerance
        self.wanted = compared_samples(network.parameters, count)
        self.weights = _unequal(_MOST).tolist()
        self.readouts = _unequal(network.readout.size).to(device=network.device, dtype=network.dtype)
        """Weights of the readouts, so that one backward pass checks all of them."""
        self.samples: list[int] = []
        self.plain: Gradients = {}
        self.sizes: dict[str, float] = {}
        """The norms of one sample's plain gradients."""
        self.squares: list[dict[str, float]] = []
        """The squared norms of each parameter's part of J^T w, for one, two, ... samples."""

    def weighted(self, values: Tensor, each: bool) -> Tensor:
        """Return what is differentiated for the rules' gradients: each readout, (B, R), or their weighted sum."""
        return values if each else (values @ self.readouts.to(values)).unsqueeze(1)

    def add_plain(self, sample: int, values: Tensor) -> None:
        """Compute the plain gradients of one sample alone, from its readouts, (1, R)."""
        self.samples = [sample]
        self.plain = self._plain_gradients(values)
        self.squares = [{name: size**2 for name, size in self.sizes.items()}]

    def disagreeing(
        self,
        names: Sequence[str],
        batch: FirstBatch,
        alone: Callable[[int], Tensor],
        settle: Callable[[dict[int, list[str]]], set[str]],
    ) -> Iterator[str]:
        """Yield the parameters whose gradients by rule are not those by plain differentiation.

        Args:
            names: Which to compare.
            batch: Uses and output gradients of a batch in which the sample is.
            alone: Returns the readouts of one sample alone, (1, R).
            settle: Returns which parameters disagree in double precision, too, given those in doubt for each sample.
        """
        sample, *others = dict.fromkeys([*self.samples, batch.samples[0], batch.samples[len(batch.samples) // 2]])
        left = dict.fromkeys(names)
        partner = others[0] if self.wanted == 1 and others else None
        silent = set(names)
        doubts: dict[int, list[str]] = {}

        def compare(sample: int, chosen: Sequence[str]) -> list[str]:
            bad = self.compared(chosen, batch, sample)
            doubtful = [name for name, error in bad.items() if error <= _KINKS]
            if doubtful:
                doubts[sample] = doubtful
            bad = {name: error for name, error in bad.items() if name not in doubtful}
            silent.difference_update(name for name in chosen if self.sizes.get(name))
            for name in bad:
                left.pop(name, None)
            return list(bad)

        yield from compare(sample, list(left))
        if partner is not None:
            self._join_by_rule(partner, list(left), batch)
        for other in others[: self.wanted - 1]:
            pooled = self.plain
            self.plain = self._plain_gradients(alone(other))
            yield from compare(other, list(left))
            self._join(other, pooled)
        for other in self._telling(silent, batch):
            self.plain = self._plain_gradients(alone(other))
            yield from compare(other, [name for name in left if name in silent])
        self.plain = {}
        yield from settle(doubts) if doubts else ()

    def probed(self, alone: bool) -> Probed:
        """Return what the kernel of the compared samples must be.

        Args:
            alone: Whether there are parameters without a rule, so that only plain differentiation counts.
        """
        count = 1 if alone and self.wanted == 1 else len(self.squares)
        weights = torch.tensor(self.weights[:count], dtype=torch.float64, device=self.network.device)
        return Probed(tuple(self.samples[:count]), weights, self.readouts, self.squares[count - 1])

    def _plain_gradients(self, values: Tensor) -> Gradients:
        """Compute each parameter's gradient of the weighted sum of readouts by plain automatic differentiation."""
        parameters = self.network.parameters
        value = (values @ self.readouts.to(values)).sum()
        if not value.requires_grad:
            self.sizes = {}
            return dict.fromkeys(parameters)
        try:
            found = torch.autograd.grad(value, list(parameters.values()), allow_unused=True)
        except (RuntimeError, AssertionError, TypeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TangentError(
                f"PyTorch cannot differentiate the model: {reason}",
                "The kernel is made of its gradients.",
                "Make sure that loss.backward() works on the same inputs.",
            ) from error
        dense = [g.to_dense() if g is not None and g.is_sparse else g for g in found]
        self.sizes = {name: quick_norm(g) for name, g in zip(parameters, dense, strict=True) if g is not None}
        return dict(zip(parameters, dense, strict=True))

    def _by_rule(
        self, names: Sequence[str], batch: FirstBatch, sample: int
    ) -> Iterator[tuple[str, Tensor | None, Tensor | None]]:
        """Yield gradients of one sample by the rules, (*shape) each, one parameter at a time.

        Of a table from which the sample looks up a few rows, only these, with their numbers: a table of all tokens
        takes longer to make than to compare.
        """
        at = list(batch.samples).index(sample)
        row = slice(at, at + 1)
        uses: dict[str, list[tuple[SeenUse, Tensor]]] = {name: [] for name in names}
        for seen, g in zip(batch.uses, batch.grads, strict=True):
            part = self.weighted(g[row].movedim(1, -1), False) if g.shape[1] > 1 else g[row]
            for name in uses.keys() & set(seen.source.parameters):
                uses[name].append((seen[row], part))
        for name, own in uses.items():  # so that one parameter's gradient is all that is written out
            narrow = own[0][0].use.narrowed() if len(own) == 1 and own[0][0].source.key == (name,) else None
            if narrow is not None:
                yield name, narrow[1].gradient(own[0][1]).detach()[0, 0], narrow[0]
                continue
            parts = [list(part) for part in zip(*own, strict=True)] or [[], []]
            found = parameter_gradients([name], self.network.parameters, *parts).get(name)
            yield name, None if found is None else found.detach()[0, 0], None

    def compared(self, names: Sequence[str], batch: FirstBatch, sample: int) -> dict[str, float]:
        """Return the parameters whose gradients disagree for one sample, with the relative error (infinite for none).

        Args:
            names: Which to compare.
            batch: Uses and output gradients of a batch in which the sample is.
            sample: Which one; its plain gradients are the latest that were computed.
        """
        bad = {}
        scale = max(self.sizes.values(), default=0.0)
        for name, found, rows in self._by_rule(names, batch, sample):
            parameter, expected = self.network.parameters[name], self.plain[name]
            shape = parameter.shape if rows is None else (len(rows), *parameter.shape[1:])
            if found is None or found.dtype != parameter.dtype or found.shape != shape:
                bad[name] = math.inf  # a use that was not seen, or gradients that are not the parameter's
                continue
            if expected is None:
                error = quick_norm(found)
            elif rows is None:
                error = quick_distance(found, expected)
            else:
                error = math.hypot(quick_distance(found, expected[rows]), _norm_elsewhere(expected, rows))
            size = self.sizes.get(name, 0.0)
            if not error <= self.tolerance * size + 1e-3 * self.tolerance * scale:
                bad[name] = error / size if size else math.inf
        return bad

    def _join(self, sample: int, pooled: Gradients) -> None:
        """Add another sample's plain gradients to the weighted sum of those before."""
        weight = self.weights[len(self.samples)]
        for name, gradient in self.plain.items():
            before = pooled.pop(name)
            if gradient is None:
                self.plain[name] = before
            else:  # not in place: two parameters may have been given one tensor
                self.plain[name] = weight * gradient if before is None else before.add(gradient, alpha=weight)
        self.samples.append(sample)
        self.squares.append({name: quick_inner(g, g) for name, g in self.plain.items() if g is not None})

    def _join_by_rule(self, sample: int, names: Sequence[str], batch: FirstBatch) -> None:
        """Add the rules' gradients of another sample, so that the kernel of two different samples is checked, too."""
        squares, weight = {}, self.weights[1]
        for name, gradient, rows in self._by_rule(names, batch, sample):
            assert gradient is not None
            plain = self.plain[name]
            squares[name] = weight**2 * quick_inner(gradient, gradient)
            if plain is not None:  # |p + w g|^2
                common = plain if rows is None else plain[rows]
                squares[name] += self.squares[0][name] + 2 * weight * quick_inner(gradient, common)
        self.samples.append(sample)
        self.squares.append(squares)

    def _telling(self, silent: set[str], batch: FirstBatch) -> Iterator[int]:
        """Yield further samples that may have a gradient where those before have none: another expert is chosen."""
        done = set(self.samples[: self.wanted])
        for _ in range(_FURTHER if silent else 0):
            counts = torch.zeros(len(batch.samples), device=self.network.device)
            for seen, g in zip(batch.uses, batch.grads, strict=True):
                if not silent.isdisjoint(seen.source.parameters):
                    counts += g.flatten(1).ne(0).any(1)
            for at, sample in enumerate(batch.samples):
                if sample in done:
                    counts[at] = 0
            if not counts.any():
                return
            best = batch.samples[int(counts.argmax())]
            done.add(best)
            yield best


def _norm_elsewhere(table: Tensor, rows: Tensor) -> float:
    """Return the norm of all rows of a table other than some; they are zero unless a rule is wrong."""
    largest = torch.linalg.vector_norm(table.flatten(1), math.inf, 1).index_fill_(0, rows, 0)
    others = largest.nonzero()[:, 0]
    return quick_norm(table[others]) if len(others) else 0.0


def _unequal(count: int) -> Tensor:
    """Return fixed weights from 0.5 to 1.5, the first of them 1."""
    weights = 0.5 + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights[0] = 1.0
    return weights
