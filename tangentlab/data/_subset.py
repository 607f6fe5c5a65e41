"""Stratified subsets."""

import torch
from torch import Tensor

from tangentlab._errors import TangentError


def split_off(labels: Tensor, fraction: float, generator: torch.Generator) -> Tensor:
    """Draw a stratified share of the examples, (N,) bool; at least one is in and at least one is out."""
    chosen = torch.zeros(len(labels), dtype=torch.bool)
    count = min(max(1, round(fraction * len(labels))), len(labels) - 1)
    chosen[stratified(labels, count, generator)] = True
    return chosen


def stratified(labels: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draw the indices of ``n`` examples in which every class has its share.

    A class with c of the N examples gets n c / N of them, rounded down or up (largest remainders first),
    drawn without replacement.

    Args:
        labels: (N,) int64.
        n: How many, from 1 to N.
        generator: Draws which.

    Returns:
        (n,) int64, ascending, so that the subset keeps the order of the whole.
    """
    total = len(labels)
    if isinstance(n, bool) or not 1 <= n <= total:
        raise TangentError(
            f"A subset of {n} examples was asked for, and there are {total}.",
            remedy=f"Ask for 1 to {total}, or leave the number out for all of them.",
        )
    counts = torch.bincount(labels)
    # In integers: n c = quota * N + remainder, so that no rounding can lose an example.
    quota, remainder = (counts * n) // total, (counts * n) % total
    missing = n - int(quota.sum())
    quota[torch.argsort(remainder, descending=True, stable=True)[:missing]] += 1
    chosen = []
    for label, share in enumerate(quota.tolist()):
        members = torch.nonzero(labels == label).flatten()
        chosen.append(members[torch.randperm(len(members), generator=generator)[:share]])
    return torch.cat(chosen).sort().values
