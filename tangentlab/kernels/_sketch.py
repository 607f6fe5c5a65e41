"""Sketched kernels: features of k numbers per sample whose inner products estimate the kernel."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._feature_kernel import FeatureKernel
from tangentlab._progress import Ticker, progress_bar
from tangentlab.kernels._groups import Group
from tangentlab.kernels._inputs import all_finite
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._network import ParametersLike
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import Plan, make_plan, run
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._projection import Projection
from tangentlab.kernels._readout import ReadoutLike
from tangentlab.kernels._verify import verify
from tangentlab.kernels.factors import Factor, Factors, Key


@dataclass(frozen=True)
class SketchedKernel(FeatureKernel):
    """A low-rank estimate F F^T of a kernel, as a matrix of shape (N R, N R) that is never formed.

    It multiplies blocks and gives its diagonal, so solvers take it like an exact kernel's operator. Cost: 4 N R k m
    operations for a product with m vectors.

    Attributes:
        features: F, (N R, k); rows run over samples, then over readouts.
        readouts: R.
        seed: Seed of the projection.
        maps: What the projection depends on besides the seed: parameters, and the form their gradients came in.

    Examples:
        >>> import torch
        >>> from tangentlab import sketch
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = sketch(network, x, k=32, readout="pntk")
        >>> (kernel @ torch.ones(20)).shape
        torch.Size([20])

    See also:
        :func:`tangentlab.sketch`, :func:`tangentlab.linalg.eigh`.
    """

    features: Tensor
    readouts: int
    seed: int
    maps: tuple[Any, ...] = field(repr=False, default=())

    def __repr__(self) -> str:
        return f"SketchedKernel(shape={self.shape}, k={self.features.shape[1]}, dtype={self.dtype}, seed={self.seed})"

    def __matmul__(self, v: Tensor) -> Tensor:
        """Compute F (F^T v) for a vector (N R,) or a block (N R, m)."""
        if not isinstance(v, Tensor) or v.ndim not in (1, 2) or v.shape[0] != self.shape[1]:
            found = tuple(v.shape) if hasattr(v, "shape") else type(v).__name__
            raise TangentError(
                f"The kernel {self.shape} was multiplied with {found}.",
                f"It takes a tensor of shape ({self.shape[1]},) or ({self.shape[1]}, m).",
                "Rows run over samples, then over readouts: use v.reshape(N * R, -1).",
            )
        return super().__matmul__(v)

    def cross(self, other: "SketchedKernel") -> Tensor:
        """Compute the estimate of the kernel between these samples and others, (N R, M R).

        Raises:
            TangentError: The two were not made with the same projection, so that products mean nothing.
        """
        if (self.seed, self.features.shape[1], self.maps) != (other.seed, other.features.shape[1], other.maps):
            raise TangentError(
                f"{self!r} and {other!r} were not made with the same projection.",
                "The seed, k, the parameters and the form of their gradients, which depends on the shape of the "
                "inputs, must agree.",
                "Sketch both sets of samples with the same options, or in one call.",
            )
        return self.features @ other.features.T


def sketch(
    model: nn.Module,
    x: Any,
    k: int,
    *,
    readout: ReadoutLike = "pntk",
    targets: Any = None,
    parameters: ParametersLike = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    memory_budget: int | float | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
    check: bool = True,
) -> SketchedKernel:
    r"""Estimate the kernel, unbiased and of low rank, from random projections of every sample's gradients to k numbers.

    .. math:: F = J S^T, \qquad S \in R^{k \times P} \text{ random with } E[S^T S] = I
        \quad\Rightarrow\quad E[F F^T] = J E[S^T S] J^T = J J^T = K

    Signs of the projection are uncorrelated with mean zero, which is E[S^T S] = I. The error of an entry is

    .. math:: E[(F F^T - K)_{nm}^2] \le (K_{nn} K_{mm} + K_{nm}^2) / k

    (for layers of more than k inputs or outputs up to two, for both up to three times that, see
    ``tangentlab/kernels/_projection.py``), so that the relative error of the whole in the Frobenius norm is about
    sqrt((1 + tr(K)^2 / |K|^2) / k). Measured errors are in ``docs/sketch.md``.

    For each layer the cheaper of two methods with the same error is used: its gradient is written out and its entries
    are added up with random signs in random places; or, for few positions and many weights, it is never written out,
    and the Fourier transforms of the sketches of inputs and output gradients are multiplied.

    Features of other samples for the same network, k and seed fit: ``sketch(m, x, k).cross(sketch(m, y, k))``
    estimates the kernel of x against y. (A model that places samples by their content may be described by the rules for
    x and not for y; the two projections then differ, and ``cross`` refuses: sketch both in one call.)

    Args:
        model: As for :func:`tangentlab.ntk`, like all arguments that are not listed.
        x: N samples.
        k: Numbers kept per sample and readout. Powers of two have fast Fourier transforms.
        readout: ``"pntk"``, ``"full"``, an int, an (O, R) tensor, or a function of a sample's outputs and its target.
        targets: One target per sample for such a function.
        dtype: Precision to compute in; the features are in single precision at least.
        memory_budget: Bytes ("4GiB") for the features and all intermediate values.
        seed: Seed of the projection; the result does not depend on batches, where the rules describe the model.
        check: Compare the exact kernel of two samples, by the factors that are sketched, with plain automatic
            differentiation.

    Returns:
        The features (N R, k) as a kernel that can be multiplied with.

    Raises:
        TangentError: Whatever would make the kernel wrong, with the remedy.

    Cost: a forward and R backward passes per sample; for each sample and layer the cheaper of 2 R T d_in d_out
    operations and adding R d_in d_out entries, and T (1 + R) Fourier transforms of length k, T being the number of
    positions. Memory N R k for the features and P for the signs. No factor outlives its batch.

    Examples:
        >>> import torch
        >>> from tangentlab import sketch
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = sketch(network, x, k=32, readout="pntk")
        >>> kernel.shape
        (20, 20)

    See also:
        :func:`tangentlab.ntk`, :func:`tangentlab.solvers.sketched_regression`,
        :func:`tangentlab.select.max_determinant`.
    """
    k, seed = _whole("k", k, 1), _whole("seed", seed, 0)
    options = Options(
        readout, parameters, output, input, dtype, device, batch_size, memory_budget, check, progress, targets
    )
    options.refuse_readouts(
        ("trace", "per_class"),
        "sketch()",
        "Features are those of one set of functions.",
        "Take readout='full' and F = features.view(N, O, k): F[:, o] are the features of output o, and F.flatten(1)"
        " those of the trace.",
    )
    problem = Problem.pose(model, x, options=options, kind="sketch", features=k)
    count = sum(p.numel() for p in problem.network.parameters.values())
    if k > count:
        raise TangentError(
            f"Gradients have {count} entries, fewer than k={k}.",
            "A sketch that is longer than what it sketches costs more and is not exact.",
            "Pass a smaller k, or use ntk or NTKOperator, which are exact.",
        )
    with progress_bar("Sketch", problem.work.rows, progress) as tick:
        features, plan = run(make_plan(problem), lambda plan: _features(plan, seed, tick))
    if not all_finite(features):
        raise TangentError(
            "The features hold NaN or infinite values.",
            "A gradient is not finite (for instance of a square root at zero), or too large for the precision.",
            "Compute in dtype=torch.float64, or look for the sample with ntk(..., diagonal=True).",
        )
    return SketchedKernel(features, plan.network.readout.size, seed, _maps(plan))


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) < 2**63:
        raise TangentError(f"{name} is {value!r}.", "", f"Pass an int of at least {least}.")
    return int(value)


def _maps(plan: Plan) -> tuple[Any, ...]:
    """Return what the projection of each parameter depends on besides seed and k."""

    def order(group: Group) -> tuple[object, ...]:
        """Return which reordering of the parameter the gradients are taken of; none for its own order."""
        source: Any = group.key[0] if group.key else ()
        return group.key if len(source) > 1 else ()

    return tuple((group.parameters, group.form == "compact", order(group)) for group in plan.left.groups)


def _features(plan: Plan, seed: int, tick: Ticker) -> Tensor:
    """Compute the features, batch by batch and in each group by group."""
    network, side, k = plan.network, plan.left, plan.work.features
    dtype = network.dtype if network.dtype.itemsize >= 4 else torch.float32
    largest = max((p.numel() for p in network.parameters.values()), default=1)
    projection = Projection(k, seed, largest, dtype, network.device)
    budget = _budget(plan, projection, k * dtype.itemsize)
    assert budget.resident  # refuses where not even a batch fits
    readouts = network.readout.size
    features = torch.empty(len(side.samples), readouts, k, dtype=dtype, device=network.device)
    factorizer = plan.factorizer(side, budget)
    for rows in factorizer.batches(range(len(side.samples))):
        kept = _Ends() if plan.problem.options.check and rows.start == 0 else None
        named = _named(plan, factorizer.batch(side.samples, rows), kept)
        features[rows.start : rows.stop] = projection(named, len(rows), readouts)
        if kept is not None:
            ends = range(0, len(rows), max(1, len(rows) - 1))
            verify(plan, *(kept.factors, ends) * 2)
        tick(len(rows))
    return features.flatten(0, 1)


def _budget(plan: Plan, projection: Projection, feature_bytes: int) -> Budget:
    """Return the memory budget: features, and two of one group's factors, as batches are sketched one by one."""
    plain = plan.budget(0)
    network, readouts = plan.network, plan.network.readout.size
    size = network.dtype.itemsize
    signs = sum(p.numel() for p in network.parameters.values()) * size
    largest = max((plan.group_bytes(group) for group in plan.left.groups), default=0)
    activations = plan.left.findings.activation_bytes * (1 + readouts)
    return Budget(
        plain.total,
        result=plan.work.rows * readouts * feature_bytes + signs,
        sample=plain.sample,
        batch_sample=activations + 2 * largest + 2 * readouts * projection.width * size,
        tile=projection.workspace * size,
        check=plain.check,
        batch_size=plain.batch_size,
    )


class _Ends:
    """The factors of the first and last sample of a batch, for the check."""

    def __init__(self) -> None:
        self.parts: dict[Key, Factor] = {}

    def keep(self, layer: str, number: int, part: Factor) -> None:
        both = [part[:1], part[-1:]] if part.count > 1 else [part]
        room = part.allocate(len(both))
        for i, one in enumerate(both):
            room[i : i + 1].write(one)
        self.parts[layer, number] = room

    @property
    def factors(self) -> Factors:
        return Factors(self.parts)


def _named(
    plan: Plan, parts: Iterator[tuple[int, Factor]], kept: _Ends | None
) -> Iterator[tuple[Sequence[str], Factor]]:
    for number, part in parts:
        group = plan.left.groups[number]
        if kept is not None:
            kept.keep(group.layer, number, part)
        yield group.parameters, part
