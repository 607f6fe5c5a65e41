"""Likelihoods of targets given the outputs of a network: their gradient and their curvature."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError


@dataclass(frozen=True)
class Curvature:
    r"""The generalized Gauss-Newton weights W = -d^2 log p(y | f) / df^2 of every sample, O x O and positive.

    .. math:: W_n = \mathrm{diag}(d_n) - d_n d_n^T / s \quad\text{(coupled)}, \qquad W_n = \mathrm{diag}(d_n)

    Attributes:
        diagonal: d, (N, O), float64. Coupled rows add up to s.
        coupled: Whether the outputs of a sample share one likelihood, as with softmax.
        scale: s, the number of samples that each sample stands for.
    """

    diagonal: Tensor
    coupled: bool
    scale: float = 1.0

    def root(self) -> Tensor:
        """Return S with W_n = S_n S_n^T, (N, O, O): diag(sqrt d), minus d sqrt(d)^T / s if coupled."""
        root = self.diagonal.sqrt()
        plain = torch.diag_embed(root)
        return plain - self.diagonal[:, :, None] * root[:, None, :] / self.scale if self.coupled else plain

    @property
    def uniform(self) -> bool:
        """Whether W is the identity times one number."""
        return not self.coupled and bool((self.diagonal == self.diagonal[0, 0]).all())


class Likelihood(ABC):
    """log p(y | f) of independent samples, each counted ``scale`` times.

    Attributes:
        targets: As the likelihood uses them.
        scale: The number of samples that each sample stands for.
    """

    name: str

    def __init__(self, targets: Tensor, scale: float = 1.0) -> None:
        self.targets, self.scale = targets, scale

    @abstractmethod
    def log_prob(self, outputs: Tensor) -> Tensor:
        """Compute log p(y_n | f_n), (N,), of single samples."""

    @abstractmethod
    def gradient(self, outputs: Tensor) -> Tensor:
        """Compute d log p / df, (N, O), scale included."""

    @abstractmethod
    def curvature(self, outputs: Tensor) -> Curvature:
        """Compute W, scale included."""

    def total(self, outputs: Tensor) -> float:
        """Compute log p of all samples, scale included."""
        return self.scale * float(self.log_prob(outputs).sum())


class Gaussian(Likelihood):
    """y = f + e with independent errors of unit variance; the posterior puts the noise into the ridge."""

    name = "regression"

    def log_prob(self, outputs: Tensor) -> Tensor:
        squares = (self.targets - outputs).square().sum(1)
        return -(squares + self.targets.shape[1] * math.log(2 * math.pi)) / 2

    def gradient(self, outputs: Tensor) -> Tensor:
        return self.scale * (self.targets - outputs)

    def curvature(self, outputs: Tensor) -> Curvature:
        return Curvature(torch.full_like(outputs, self.scale), False, self.scale)


class Categorical(Likelihood):
    """Classes by softmax of the outputs: W = diag(p) - p p^T."""

    name = "classification"

    def log_prob(self, outputs: Tensor) -> Tensor:
        return torch.log_softmax(outputs, 1).gather(1, self.targets[:, None])[:, 0]

    def gradient(self, outputs: Tensor) -> Tensor:
        hot = torch.nn.functional.one_hot(self.targets, outputs.shape[1])
        return self.scale * (hot - torch.softmax(outputs, 1))

    def curvature(self, outputs: Tensor) -> Curvature:
        return Curvature(self.scale * torch.softmax(outputs, 1), True, self.scale)


class Bernoulli(Likelihood):
    """Two classes by the sigmoid of one output: W = p (1 - p)."""

    name = "classification"

    def log_prob(self, outputs: Tensor) -> Tensor:
        signs = 2.0 * self.targets - 1
        return torch.nn.functional.logsigmoid(outputs[:, 0] * signs)

    def gradient(self, outputs: Tensor) -> Tensor:
        return self.scale * (self.targets[:, None] - torch.sigmoid(outputs))

    def curvature(self, outputs: Tensor) -> Curvature:
        p = torch.sigmoid(outputs)
        return Curvature(self.scale * p * (1 - p), False, self.scale)


def make_likelihood(kind: str, targets: Tensor, outputs: int, scale: float, unseen: str = "refuse") -> Likelihood:
    """Return the likelihood of targets for a network of so many outputs.

    Args:
        kind: ``"regression"`` or ``"classification"``.
        targets: (N,) or (N, O) numbers; (N,) classes.
        outputs: O.
        scale: The number of samples that each sample stands for.
        unseen: ``"refuse"`` or ``"allow"`` classes without a sample.

    Raises:
        TangentError: Targets and outputs do not fit.
    """
    if kind == "regression":
        values = targets.double().reshape(len(targets), -1)
        if values.shape[1] != outputs:
            raise TangentError(
                f"The network has {outputs} outputs and the targets {values.shape[1]} per sample.",
                "Each output has a target.",
                "Give targets (N, outputs), or integers for classification.",
            )
        return Gaussian(values, scale)
    labels = check_labels(targets, outputs)
    classes = max(2, outputs)
    missing = sorted(set(range(classes)) - set(labels.unique().tolist()))
    if missing and unseen == "refuse":
        shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
        raise TangentError(
            f"{len(missing)} of {classes} classes have no training sample: {shown}.",
            "The posterior would know nothing about them, and its probabilities for them would mean little.",
            'Add samples of them, or accept that with unseen="allow".',
        )
    return Bernoulli(labels, scale) if outputs == 1 else Categorical(labels, scale)


def check_labels(targets: Any, outputs: int) -> Tensor:
    """Return class numbers (N,) as int64, or refuse them."""
    try:
        labels = torch.as_tensor(targets)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(f"The labels are a {type(targets).__name__}.", "", "Give integers (N,).") from error
    classes = max(2, outputs)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    whole = labels.dtype == torch.bool or not (labels.is_floating_point() or labels.is_complex())
    if labels.ndim != 1 or not whole:
        raise TangentError(
            f"The labels are {str(labels.dtype).removeprefix('torch.')} {tuple(labels.shape)}.",
            "Classification needs one class number per sample.",
            "Give integers (N,); for one-hot vectors, y.argmax(1).",
        )
    if not len(labels):
        raise TangentError("There are no labels.", "", "Give at least one sample.")
    labels = labels.long()
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise TangentError(
            f"The labels go from {low} to {high}.",
            f"The network has {outputs} outputs, so that classes are numbered 0 to {classes - 1}.",
            "Number the classes as the network's outputs.",
        )
    return labels
