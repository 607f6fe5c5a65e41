"""The linear datamodeling score: does the sum of a subset's scores predict what a network trained on it gives?"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._seeds import generator
from tangentlab.attribution._checks import check_number, check_whole
from tangentlab.attribution._retrained import Retrained


@dataclass(frozen=True, eq=False)
class LDS:
    """The linear datamodeling score of attribution scores.

    Attributes:
        per_sample: (M,) Spearman's rank correlation of each test sample; 0 where one side is constant.
        mean: Its mean over the test samples.
        interval: The bootstrap interval of the mean.
        draws: (B,) the resampled means. Those of two methods are paired: ``a.draws - b.draws`` are draws of the
            difference, if both were compared with the same retrained networks and the same seed.
    """

    per_sample: Tensor
    mean: float
    interval: tuple[float, float]
    draws: Tensor = field(repr=False)

    def __str__(self) -> str:
        return f"LDS {self.mean:.3f} [{self.interval[0]:.3f}, {self.interval[1]:.3f}]"


def lds(scores: Any, retrained: Retrained, *, resamples: int = 1000, level: float = 0.95, seed: int = 0) -> LDS:
    r"""Compute the linear datamodeling score (Park et al. 2023).

    .. math:: LDS(x) = \rho\big( (f(x; S_1), \ldots, f(x; S_s)),\;
        (\sum_{n \in S_1} \tau(x)_n, \ldots, \sum_{n \in S_s} \tau(x)_n) \big)

    with Spearman's rank correlation rho, the scores tau of a test sample x and the measured value f(x; S) of a network
    trained on the subset S. The interval comes from a bootstrap over both the retrained networks and the test samples,
    since both are draws.

    Args:
        scores: tau, (M, N): an :class:`Attribution`, or a tensor.
        retrained: Networks that were trained on subsets of the same N samples, measured on the same M test samples.
        resamples: B, draws of the bootstrap.
        level: Coverage of the interval.
        seed: Seed of the bootstrap.

    Cost: 2 S M N operations, one sort of (S, M), and about 20 S M per draw.

    Examples:
        >>> import torch
        >>> from tangentlab import attribution
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> def fit(rows, seed):
        ...     return torch.randn(3, generator=torch.Generator().manual_seed(seed + int(rows[0])))
        ...
        >>> retrained = attribution.retrain(fit, 20, subsets=6, progress=False)
        >>> type(attribution.lds(torch.randn(3, 20), retrained)).__name__
        'LDS'

    See also:
        :func:`tangentlab.attribution.retrain`, :func:`tangentlab.attribution.attribute`.
    """
    if not isinstance(retrained, Retrained):
        raise TangentError(
            f"The retrained networks are of type {type(retrained).__name__}.",
            remedy="Pass what attribution.retrain returns, or attribution.Retrained(subsets, values).",
        )
    try:
        values = torch.as_tensor(getattr(scores, "scores", scores)).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(
            f"The scores are of type {type(scores).__name__}.", remedy="Pass an Attribution, or a tensor (M, N)."
        ) from error
    count, samples = retrained.subsets.shape
    tests = retrained.values.shape[1]
    if tuple(values.shape) != (tests, samples):
        raise TangentError(
            f"The scores are {tuple(values.shape)}, and the networks were trained on parts of {samples:,} samples and "
            f"measured on {tests:,}.",
            remedy=f"Pass scores of shape ({tests}, {samples}): test samples by training samples.",
        )
    if retrained.missing:
        raise TangentError(
            f"{len(retrained.missing)} retrained networks are missing, the first of subset {retrained.missing[0][0]}.",
            remedy="Run the other shards, then call retrain again.",
        )
    if count < 3:
        raise TangentError(f"{count} retrained networks have no rank correlation.", remedy="Retrain on 20 or more.")
    if not bool(torch.isfinite(values).all()):
        raise TangentError("The scores hold NaN or infinite values.", remedy="Compute them in float64.")
    resamples = check_whole("resamples", resamples, 1)
    if not 0 < check_number("level", level, 0) < 1:
        raise TangentError(f"level={level}.", remedy="Use a number between 0 and 1, for example 0.95.")
    predicted = retrained.subsets.double() @ values.double().T
    one, two = _Ranks(predicted), _Ranks(retrained.values)
    correlations = _correlation(one, two, torch.ones(count, dtype=torch.float64))
    random = generator("lds bootstrap", seed)
    draws = torch.empty(resamples, dtype=torch.float64)
    for draw in range(resamples):
        networks = torch.randint(count, (count,), generator=random).bincount(minlength=count).double()
        columns = torch.randint(tests, (tests,), generator=random)
        draws[draw] = _correlation(one, two, networks)[columns].mean()
    edge = (1 - level) / 2
    low, high = torch.quantile(draws, torch.tensor([edge, 1 - edge], dtype=torch.float64)).tolist()
    return LDS(correlations, float(correlations.mean()), (low, high), draws)


class _Ranks:
    """Mean ranks of each column under any multiplicities of the rows, from one sort.

    With multiplicities c, the mean rank of a row is the multiplicities below it plus half of those equal to it:
    a resample with repeated rows needs no sorting of its own.

    Args:
        values: (S, M).
    """

    def __init__(self, values: Tensor) -> None:
        ordered, self.order = values.sort(0)
        rows = torch.arange(len(values))[:, None].expand_as(ordered)
        first = torch.ones_like(ordered, dtype=torch.bool)
        first[1:] = ordered[1:] != ordered[:-1]
        last = torch.ones_like(first)
        last[:-1] = first[1:]
        self.below = torch.where(first, rows, 0).cummax(0).values  # where the run of equal values begins
        self.above = len(values) - torch.where(last, len(values) - 1 - rows, 0).flip(0).cummax(0).values.flip(0)

    def __call__(self, multiplicities: Tensor) -> Tensor:
        """Return the ranks, (S, M), in the order of the rows."""
        sums = torch.zeros(len(multiplicities) + 1, self.order.shape[1], dtype=torch.float64)
        sums[1:] = multiplicities[self.order].cumsum(0)
        ranks = (sums.gather(0, self.below) + sums.gather(0, self.above) + 1) / 2
        return torch.empty_like(ranks).scatter_(0, self.order, ranks)


def _correlation(one: _Ranks, two: _Ranks, multiplicities: Tensor) -> Tensor:
    """Compute Spearman's correlation of each column, (M,), with rows repeated as given; 0 where one is constant."""
    share = multiplicities[:, None] / multiplicities.sum()
    a, b = (ranks(multiplicities) for ranks in (one, two))
    a, b = (ranks - (share * ranks).sum(0) for ranks in (a, b))
    size = ((share * a.square()).sum(0) * (share * b.square()).sum(0)).sqrt()
    varies = size > 1e-9  # ranks are multiples of 1/2: less is rounding
    return torch.where(varies, (share * a * b).sum(0) / size.clamp(min=1e-9), 0.0)
