"""The distribution of a kernel's eigenvalues, counted or estimated from products."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._scaling import even_exponent, out_of_range, restored
from tangentlab._sums import exponent_of, times_power
from tangentlab.linalg._eigen import decompose
from tangentlab.linalg._forms import as_source
from tangentlab.linalg._source import Source
from tangentlab.linalg._spectrum import Spectrum

_EXACT = 4096


@dataclass(frozen=True, eq=False)
class SpectralDensity:
    """A histogram of eigenvalues.

    Attributes:
        edges: The edges of the bins, (B + 1,), ascending.
        counts: The number of eigenvalues in each bin, (B,); estimates unless ``exact``.
        below: The number of eigenvalues below the first edge, for example those at zero.
        n: The number of all eigenvalues.
        exact: Whether eigenvalues were counted.
    """

    edges: Tensor
    counts: Tensor
    below: float
    n: int
    exact: bool

    @property
    def density(self) -> Tensor:
        """The share of the eigenvalues per unit of lambda, (B,)."""
        return self.counts / self.n / self.edges.diff()

    def to_pandas(self) -> Any:
        """Return a table with one row per bin."""
        import pandas as pd

        left, right = self.edges[:-1].cpu().numpy(), self.edges[1:].cpu().numpy()
        counts, density = self.counts.cpu().numpy(), self.density.cpu().numpy()
        return pd.DataFrame({"left": left, "right": right, "count": counts, "density": density})

    def __repr__(self) -> str:
        kind = "counted" if self.exact else "estimated"
        ends = f"{float(self.edges[0]):.3g} to {float(self.edges[-1]):.3g}"
        return f"SpectralDensity({self.n:,} eigenvalues {kind} in {len(self.counts)} bins from {ends})"


def spectral_density(
    kernel: Any,
    *,
    bins: int = 50,
    log: bool = True,
    floor: float = 1e-8,
    probes: int = 16,
    steps: int = 80,
    seed: int = 0,
    progress: bool | None = None,
) -> SpectralDensity:
    """Compute the distribution of a kernel's eigenvalues.

    The eigenvalues of kernels up to 4,096 rows, and of complete spectra, are counted. Larger kernels use stochastic
    Lanczos quadrature (Ubaru, Chen and Saad 2017). From each of some random vectors v, a Lanczos recurrence makes a
    quadrature rule with v^T g(K) v / v^T v = sum of w_i g(theta_i), whose mean estimates the mean of g over the
    eigenvalues. Isolated large eigenvalues are found exactly; inside the bulk, the estimate is smooth on the scale of
    1 / steps of the range, with a relative error in a bin's count of about sqrt(2 / (probes count)).

    Cost above 4,096 rows: ``steps`` products with ``probes`` vectors, 4 n probes steps^2 operations to keep them
    orthogonal, and 8 n probes steps bytes. Below, that of :func:`eigh`; none for a spectrum.

    Args:
        kernel: A kernel source, or its complete :class:`Spectrum`.
        bins: The number of bins.
        log: Whether bins are equal on the logarithmic scale from ``floor`` lambda_max to lambda_max; otherwise they
            are equal from the smallest eigenvalue to lambda_max.
        floor: See ``log``.
        probes: The number of random vectors, which share the products.
        steps: The number of products, each with ``probes`` vectors.
        seed: The seed of the random vectors.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> type(linalg.spectral_density(kernel, progress=False)).__name__
        'SpectralDensity'

    See also:
        :func:`tangentlab.linalg.eigh`, :func:`tangentlab.linalg.trace`.
    """
    if bins < 1 or probes < 1 or steps < 2 or not 0 < floor < 1:
        raise TangentError(
            f"The options bins={bins}, probes={probes}, steps={steps}, floor={floor} are out of range.",
            remedy="Use at least one bin and probe, two steps, and a floor between 0 and 1.",
        )
    if isinstance(kernel, Spectrum):
        if not kernel.complete:
            raise TangentError(
                f"The spectrum holds {len(kernel.values):,} of {kernel.n:,} eigenvalues.",
                remedy="Give the kernel, or eigh(kernel) without k.",
            )
        n, exponent = kernel.n, even_exponent(float(kernel.values.abs().max()))
        nodes = times_power(kernel.values, -exponent)
        weights, exact = torch.ones_like(nodes), True
    else:
        source = as_source(kernel).unit()
        n, exact, exponent = source.n, source.n <= _EXACT, source.exponent
        if exact:
            nodes = decompose(source).values
            weights = torch.ones_like(nodes)
        else:
            nodes, weights = _quadrature(source, probes, steps, seed, progress)
    largest = float(nodes.max())
    if not largest > 0:
        raise TangentError(f"The largest eigenvalue is {largest:.3g}.", remedy="Give a kernel that is not zero.")
    if log:
        edges = largest * torch.logspace(float(torch.tensor(floor).log10()), 0, bins + 1, dtype=torch.float64)
    else:
        edges = torch.linspace(min(float(nodes.min()), 0.0), largest, bins + 1, dtype=torch.float64)
    edges = edges.to(nodes)
    edges[-1] = largest
    place = torch.bucketize(nodes, edges, right=True).clamp(max=bins)
    counts = torch.zeros(bins + 1, dtype=torch.float64, device=nodes.device).index_add_(0, place, weights)
    known = float(counts.sum()) if exact else float(n)
    if exponent and exponent_of(float(edges[edges != 0].abs().min())) + exponent < -1021:
        raise out_of_range("edges of the bins")
    edges = restored(edges, exponent, "edges of the bins")
    return SpectralDensity(edges, counts[1:], float(counts[0]) + (n - known), n, exact)


def _quadrature(source: Source, probes: int, steps: int, seed: int, progress: bool | None) -> tuple[Tensor, Tensor]:
    """Compute nodes and weights of all probes' rules; the weights add up to n."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(source.n, probes, generator=generator, dtype=torch.float64).to(source.device)
    current = start / start.norm(dim=0)
    basis, alphas, betas = [current], [], []
    with progress_bar("spectral density", steps, progress) as tick:
        for _ in range(steps):
            block = source.product(current)
            alphas.append((block * current).sum(0))
            for _ in range(2):  # against all earlier vectors of the same probe: otherwise, spurious eigenvalues appear
                for earlier in basis:
                    block = block - earlier * (earlier * block).sum(0)
            beta = block.norm(dim=0)
            betas.append(beta)
            tick(1)
            if len(alphas) == steps or bool((beta <= 1e-12 * torch.stack(alphas).abs().max()).any()):
                break
            current = block / beta
            basis.append(current)
    diagonal, off = torch.stack(alphas, 1), torch.stack(betas, 1)[:, : len(alphas) - 1]
    matrix = torch.diag_embed(diagonal) + torch.diag_embed(off, 1) + torch.diag_embed(off, -1)
    values, vectors = torch.linalg.eigh(matrix)
    weights = vectors[:, 0].square() * (source.n / probes)
    return values.flatten(), weights.flatten()
