"""What a kernel considers similar: nearest samples, an order by clusters, a map in two dimensions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError

NEAREST = 8
"""Nearest samples that are kept."""
_ROWS = 512
"""Rows of a kernel that are in memory at a time."""


def strips(kernel: Any) -> Iterator[tuple[slice, Tensor]]:
    """Yield the rows of a kernel in memory or on disk, a strip (r, N) in float64 at a time."""
    count = kernel.shape[0]
    for start in range(0, count, _ROWS):
        rows = slice(start, min(start + _ROWS, count))
        block = kernel.read(rows, slice(0, count)) if hasattr(kernel, "read") else kernel[rows]
        yield rows, torch.as_tensor(block).detach().cpu().double()


def nearest(rows: slice, values: Tensor, largest: bool = True) -> tuple[Tensor, Tensor]:
    """Return the samples nearest to those of a strip, themselves excepted: indices and values, (r, m)."""
    count = values.shape[1]
    values = values.clone()
    own = torch.arange(rows.start, rows.stop)
    values[torch.arange(len(values)), own] = -torch.inf if largest else torch.inf
    found = values.topk(min(NEAREST, count - 1), dim=1, largest=largest)
    return found.indices, found.values


def nearest_inputs(features: Tensor) -> tuple[Tensor, Tensor]:
    """Return the samples whose inputs are nearest by Euclidean distance: indices and distances, (N, m)."""
    count = len(features)
    found = []
    for start in range(0, count, _ROWS):
        rows = slice(start, min(start + _ROWS, count))
        found.append(nearest(rows, torch.cdist(features[rows], features), largest=False))
    indices, distances = zip(*found, strict=True)
    return torch.cat(indices), torch.cat(distances)


def cosines(block: Tensor, diagonal: Tensor, rows: slice) -> Tensor:
    """Compute K_ij / sqrt(K_ii K_jj) of a strip of rows; 0 for samples without a gradient."""
    size = diagonal.clamp(min=0).sqrt()
    product = size[rows, None] * size[None]
    return torch.where(product > 0, block / product, 0.0).clamp(-1, 1)


def cluster_order(cosine: Tensor) -> Tensor:
    """Order samples by hierarchical clustering: average linkage of the distances sqrt(2 - 2 cos), SciPy's leaves.

    Cost: O(n^2) operations and 12 n^2 bytes.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import squareform

    if len(cosine) < 3:
        return torch.arange(len(cosine))
    distances = (2 - 2 * cosine).clamp(min=0).sqrt()
    distances.fill_diagonal_(0)
    condensed = squareform(((distances + distances.T) / 2).numpy(), checks=False)
    return torch.from_numpy(leaves_list(linkage(condensed, "average")).astype(np.int64))


def embed(method: str, cosine: Tensor, start: Tensor | None = None) -> Tensor:
    """Place samples in the plane by their tangent features of unit length, (N, 2), scaled to [-1, 1].

    Args:
        method: ``"pca"``, kernel PCA (the centered kernel's two leading components), or ``"tsne"``, t-SNE of the
            distances sqrt(2 - 2 cos), which shows neighborhoods and not distances.
        cosine: The kernel of unit features, (N, N).
        start: Places to start t-SNE from, so that two maps are comparable; by default kernel PCA.

    Raises:
        TangentError: There is no such method.
    """
    if method not in ("pca", "tsne"):
        raise TangentError(f"There is no embedding {method!r}.", remedy='Use "tsne" or "pca".')
    count = len(cosine)
    if start is None or method == "pca":
        centered = cosine - cosine.mean(0) - cosine.mean(1, keepdim=True) + cosine.mean()
        values, vectors = torch.linalg.eigh(centered) if count < 3 else _leading(centered)
        start = vectors * values.clamp(min=0).sqrt()
        start = _signed(start)
    if method == "tsne" and count > 5:
        from sklearn.manifold import TSNE

        distances = (2 - 2 * cosine).clamp(min=0).sqrt().fill_diagonal_(0)
        first = (1e-4 * start / start[:, 0].std().clamp(min=1e-12)).numpy()
        perplexity = min(30.0, (count - 1) / 3)
        fit = TSNE(init=first, metric="precomputed", perplexity=perplexity, random_state=0, max_iter=500, n_jobs=1)
        start = torch.from_numpy(fit.fit_transform(distances.numpy())).double()
    low, high = start.amin(0), start.amax(0)
    return 2 * (start - low) / (high - low).max().clamp(min=1e-12) - (high - low) / (high - low).max().clamp(min=1e-12)


def _leading(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the two leading eigenpairs of a symmetric matrix, the largest first."""
    from tangentlab import linalg

    found = linalg.eigh(matrix, 2, progress=False)
    return found.values, found.vectors


def _signed(vectors: Tensor) -> Tensor:
    """Choose the sign of each column, so that its entry of largest size is positive."""
    picked = vectors.abs().argmax(0, keepdim=True)
    signs = vectors.gather(0, picked).sign()
    return vectors * torch.where(signs == 0, 1.0, signs)
