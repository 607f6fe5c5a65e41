"""Eigenfunctions of a kernel, and what they have to do with labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab.explorer._labels import Labels


@dataclass(frozen=True, eq=False)
class Eigenfunctions:
    """The k leading eigenfunctions phi_j = sqrt(N) u_j, with E[phi_j^2] = 1.

    Attributes:
        values: (N, k), float64; the entry of largest size of each is positive.
        energy: The share of the targets' energy on each eigenvector, |u_j^T Y|^2 / |Y|^2, (m,), for all m that are
            known; None without labels. The square root of the sum of the first K is the energy concentration of
            ortiz2021.
        accuracy: How often the sign of phi_j tells two groups of classes apart, (k,); None without labels.
        chance: The share of samples in the larger of the groups, (k,).
        sides: The group of each class, (k, C), 1 where phi_j > 0 stands for the class, else -1; (k, 1) for real
            targets.
    """

    values: Tensor
    energy: Tensor | None = None
    accuracy: Tensor | None = None
    chance: Tensor | None = None
    sides: Tensor | None = None


def describe(spectrum: linalg.Spectrum, labels: Labels | None, k: int) -> Eigenfunctions:
    """Compute energies and accuracies of the leading eigenfunctions."""
    count = spectrum.n
    vectors = spectrum.vectors[:, : min(k, len(spectrum.values))]
    picked = vectors.abs().argmax(0, keepdim=True)
    values = vectors * vectors.gather(0, picked).sign() * count**0.5
    if labels is None:
        return Eigenfunctions(values)
    y = labels.targets
    energy = (spectrum.vectors.T @ y).square().sum(1) / y.square().sum().clamp(min=1e-300)
    return Eigenfunctions(values, energy, *_signs(values, labels))


def _signs(values: Tensor, labels: Labels) -> tuple[Tensor, Tensor, Tensor]:
    """Compute the accuracy of sign(phi_j) as a classifier, the share of the larger group, and the groups.

    Two classes, and targets of two signs, are told apart directly. Of more classes, each belongs to the side where most
    of its samples are, with at least one class on either side.
    """
    positive = values > 0  # (N, k)
    if labels.classes is None:
        y = labels.targets[:, 0]
        above = y > 0 if bool((y > 0).any()) and bool((y < 0).any()) else y > y.mean()
        right = (positive == above[:, None]).double().mean(0)
        sides = torch.where(right >= 0.5, 1, -1)[:, None]
        part = float(above.double().mean())
        return torch.maximum(right, 1 - right), torch.full_like(right, max(part, 1 - part)), sides
    one_hot = torch.nn.functional.one_hot(labels.classes, len(labels.names)).double()
    sizes = one_hot.sum(0)
    shares = one_hot.T @ positive.double() / sizes.clamp(min=1)[:, None]  # (C, k)
    there = sizes > 0
    high = torch.where(there[:, None], shares, -torch.inf).argmax(0, keepdim=True)
    others = torch.where(there[:, None], shares, torch.inf).scatter(0, high, torch.inf)
    low = others.argmin(0, keepdim=True)  # another class than the highest, also where all shares are equal
    group = shares >= 0.5
    group.scatter_(0, low, False)
    group.scatter_(0, high, True)
    accuracy = _accuracy(shares, sizes, group)
    if int(there.sum()) == 2:
        accuracy_turned = _accuracy(shares, sizes, ~group)
        group = torch.where(accuracy_turned > accuracy, ~group, group)
        accuracy = torch.maximum(accuracy, accuracy_turned)
    larger = (sizes[:, None] * group).sum(0) / sizes.sum()
    return accuracy, torch.maximum(larger, 1 - larger), torch.where(group, 1, -1).T.contiguous()


def _accuracy(shares: Tensor, sizes: Tensor, group: Tensor) -> Tensor:
    right = torch.where(group, shares, 1 - shares)
    return (sizes[:, None] * right).sum(0) / sizes.sum()
