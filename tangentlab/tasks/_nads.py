"""Data sets D(u) that only differ along one direction (ortiz2021, appendix C.1)."""

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._seeds import generator
from tangentlab.data import Examples, ImageData, Provenance


def nad(
    direction: Tensor,
    *,
    n_train: int = 10_000,
    n_test: int = 10_000,
    epsilon: float = 1.0,
    sigma: float = 1.0,
    seed: int = 0,
    name: str = "nad",
) -> ImageData:
    """Draw the linearly separable data set D(u): x = epsilon y u + w, y = -1 or 1, w ~ N(0, sigma^2 (I - u u^T)).

    The noise has no part along u, so <u, x> = epsilon y exactly, and only along u do the classes differ. The paper
    takes epsilon = sigma = 1 and 10,000 samples each for training and testing, u being a neural anisotropy direction.

    Deviations between paper and code: the authors' code scales y u by epsilon / 2, so epsilon=0.5 here is what they ran
    with 1; and the paper writes the covariance as sigma (I - u u^T) where the code has sigma^2 (the same for 1).

    Cost: one random number and 4 bytes per pixel of all samples, and up to 24 bytes while a split is drawn.

    Args:
        direction: u, (C, H, W); it is normalized to length one.
        n_train: Training samples.
        n_test: Test samples.
        epsilon: Half the distance between the classes.
        sigma: Standard deviation of the noise in every direction orthogonal to u.
        seed: Seed of the draws.
        name: Name of the task.

    Returns:
        Inputs (N, C, H, W) float32 used as they are, targets (N, 1) of -1 and 1, labels 0 and 1.

    Examples:
        >>> import torch
        >>> from tangentlab import tasks
        >>> len(tasks.nad(torch.randn(1, 8, 8), n_train=20, n_test=10).train)
        20

    See also:
        :func:`tangentlab.analysis.anisotropy_directions`.
    """
    if direction.ndim != 3:
        raise TangentError(
            f"The direction has shape {tuple(direction.shape)}.",
            remedy="Give an image (C, H, W), for example direction.reshape(1, 32, 32).",
        )
    u = direction.detach().double().cpu()
    length = u.norm()
    if not torch.isfinite(length) or length == 0:
        raise TangentError(f"The direction has length {length.item()}.", remedy="Give a finite vector, not zero.")
    for what, value, least in (("n_train", n_train, 1), ("n_test", n_test, 1)):
        if value < least:
            raise TangentError(f"{what}={value} is too small.", remedy="Give at least one sample.")
    if epsilon <= 0 or sigma < 0:
        raise TangentError(f"epsilon={epsilon} must be positive and sigma={sigma} must not be negative.")
    u = u / length
    splits = [_draw(u, n, epsilon, sigma, generator("nad", seed, split)) for split, n in enumerate((n_train, n_test))]
    source = f"drawn: D(u) with epsilon {epsilon:g}, sigma {sigma:g}, seed {seed}"
    return ImageData(name, splits[0], splits[1], ("-1", "+1"), Provenance(source))


def _draw(u: Tensor, n: int, epsilon: float, sigma: float, source: torch.Generator) -> Examples:
    labels = torch.randint(2, (n,), generator=source)
    y = (2 * labels - 1).double()
    x = sigma * torch.randn(n, *u.shape, generator=source, dtype=torch.float32).double()
    # Remove the noise along u and put the signal there, in float64, so that it is exact to rounding.
    along = epsilon * y - torch.einsum("nchw,chw->n", x, u)
    x = x + along[:, None, None, None] * u
    return Examples(x.float(), labels, task_targets=y.float()[:, None])
