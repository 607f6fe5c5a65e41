"""The leading eigenpairs of a large kernel from products with blocks of vectors.

Block Krylov with Rayleigh-Ritz and thick restart. An orthonormal basis V grows by blocks: the next block is what
K V_last has outside the span of V. Both V and K V are kept in float64, and the projection T = V^T K V is computed from
them rather than from the recurrence of Lanczos, so that any block may be appended (for example a random one), and
rounding in the products of a float32 kernel appears in the residuals instead of as spurious eigenvalues.

Cost for a basis of m vectors (about 1.5 to 2.5 k): 2 n^2 m operations in products, all of them matrix-matrix, 6 n m^2
in float64 for the basis, O(m^3) for T. Memory: 16 n m bytes.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker
from tangentlab.linalg._source import Source

OWN = 1e3
"""A residual may be ``tolerance`` times the largest eigenvalue, and at most ``OWN * tolerance`` times its own."""
_PROBES, _PROBE_STEPS = 32, 3
_RESTARTS = 30


@dataclass
class _Ritz:
    values: Tensor
    vectors: Tensor


def floor(source: Source, norm: float) -> float:
    """Return the residual below which nothing differs from zero: rounding of the products and of the basis."""
    double = source.n * torch.finfo(torch.float64).eps
    return max(double, float(torch.finfo(source.dtype).eps)) * norm


def allowed(source: Source, values: Tensor, tolerance: float, norm: float) -> Tensor:
    """Return the largest accepted residual for each eigenvalue, (k,), of a kernel of this norm."""
    largest = float(values.abs().max())
    own = (OWN * values.abs()).clamp(max=largest) * tolerance
    return own.clamp(min=floor(source, norm))


class BlockKrylov:
    """A computation of the leading k eigenpairs (largest algebraic).

    Args:
        source: The kernel.
        k: The number of pairs.
        tolerance: See :func:`allowed`.
        seed: The seed of the random start.
        block: Vectors per product; None for automatic. Large blocks use the processor better, small ones need fewer
            vectors in total.
    """

    def __init__(self, source: Source, k: int, tolerance: float, seed: int, block: int | None = None) -> None:
        self.source, self.k, self.tolerance = source, k, tolerance
        self.block = min(source.n, block or max(16, min(128, -(-k // 128) * 16)))
        # With room for a search outside the basis, which a small block needs most: see _missed.
        self.width = min(source.n, max(5 * k // 2 + self.block, k + 8 * self.block, k + 5 * _PROBES))
        self.generator = torch.Generator(device="cpu").manual_seed(seed)
        options = {"dtype": torch.float64, "device": source.device}
        # One vector per row: a block of the basis is contiguous.
        self.basis = torch.empty(self.width, source.n, **options)  # type: ignore[call-overload]
        self.images = torch.empty(self.width, source.n, **options)  # type: ignore[call-overload]
        self.projection = torch.zeros(self.width, self.width, **options)  # type: ignore[call-overload]
        self.size = 0
        self.scale = 0.0

    def run(self, tick: Ticker) -> tuple[Tensor, Tensor, Tensor]:
        """Compute eigenvalues (k,), eigenvectors (n, k) and residuals (k,).

        Raises:
            TangentError: The residuals stay above the allowed ones.
        """
        block, factor = self._orthonormal(self._random(self.block))
        check = self.k + max(2 * self.block, self.k // 2)
        restarts = 0
        while True:
            added = self._append(block)
            tick(added, f"{self.size} of {self.width} vectors, restart {restarts}")
            block, factor = self._orthonormal(*self._outside(added))
            full = self.size + block.shape[0] > self.width or not block.shape[0]
            if not full and self.size < check:
                continue
            check = self.size + max(self.block, self.k // 8)
            ritz = self._ritz()
            limit = allowed(self.source, ritz.values[: self.k], self.tolerance, self.scale)
            # What the images have outside the basis is all in those of the last block.
            last = ritz.vectors[self.size - added : self.size, : self.k]
            promising = bool(((factor @ last[: len(factor)]).norm(dim=0) <= limit).all())
            if not full and not promising:
                continue
            gap = self._compress(ritz)
            residuals = gap.norm(dim=1)
            converged = bool((residuals <= limit).all()) or self.size == self.source.n
            if converged and not self._missed(ritz.values[: self.k]):
                return ritz.values[: self.k], self.basis[: self.k].T.contiguous(), residuals
            restarts += 1
            if restarts > _RESTARTS:
                raise self._refusal(ritz.values[: self.k], residuals, limit)
            if converged:  # the search left new directions in the basis: make them part of it
                ritz = self._ritz()
                gap = self._compress(ritz)
            # The worst residuals span what the images of all wanted vectors have outside the basis.
            worst = (gap.norm(dim=1) / limit).argsort(descending=True)[: self.block]
            block, factor = self._orthonormal(gap[worst])
            check = self.size + max(self.block, self.k // 8)

    def _random(self, count: int) -> Tensor:
        count = min(count, self.source.n - self.size)
        block = torch.randn(count, self.source.n, generator=self.generator, dtype=torch.float64)
        return block.to(self.source.device)

    def _outside(self, added: int) -> tuple[Tensor, Tensor]:
        """Return the images of the last block, which hold what the basis lacks, and their coefficients in the basis."""
        last = slice(self.size - added, self.size - added + min(added, self.source.n - self.size))
        return self.images[last].clone(), self.projection[last, : self.size]

    def _append(self, block: Tensor) -> int:
        """Add orthonormal rows, their images and their part of the projection."""
        count = block.shape[0]
        new = slice(self.size, self.size + count)
        self.basis[new] = block
        self.images[new] = self.source.product(block.T).T
        self.size += count
        part = self.basis[: self.size] @ self.images[new].T
        self.projection[: self.size, new] = part
        self.projection[new, : self.size] = part.T
        corner = self.projection[new, new]
        corner.copy_((corner + corner.T) / 2)
        self.scale = max(self.scale, float(self.images[new].norm(dim=1).max()))
        return count

    def _orthonormal(self, block: Tensor, inner: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Find rows that span the part of ``block`` outside the basis, and R with (outside part) = R^T rows.

        Rows with nothing outside (an invariant space was found) are replaced by random ones, whose share in R is zero.
        ``inner`` is block basis^T where that is known already.
        """
        count = block.shape[0]
        factor = torch.eye(count, dtype=torch.float64, device=block.device)
        if not count:
            return block, factor
        basis = self.basis[: self.size]
        tiny = 1e-14 * self.scale * math.sqrt(self.source.n)
        for sweep in range(5):
            if self.size:
                inner = block @ basis.T if sweep or inner is None else inner
                block = torch.addmm(block, inner, basis, alpha=-1)
            columns, triangle = torch.linalg.qr(block.T)
            block, factor = columns.T, triangle @ factor
            norms = triangle.diagonal().abs()
            lost = norms <= (tiny if sweep == 0 else 1e-8)
            if bool(lost.any()):
                block[lost] = self._random(count)[: int(lost.sum())] / math.sqrt(self.source.n)
                factor[lost] = 0
            elif sweep and float(norms.min()) > 0.5:
                break
        return block.contiguous(), factor

    def _ritz(self) -> _Ritz:
        """Apply Rayleigh-Ritz to the basis, largest value first."""
        values, vectors = torch.linalg.eigh(self.projection[: self.size, : self.size])
        return _Ritz(values.flip(0), vectors.flip(1))

    def _compress(self, ritz: _Ritz) -> Tensor:
        """Restart with the leading Ritz vectors and some more; return K u - lambda u of the wanted ones, (k, n)."""
        keep = min(self.size, self.k + max(self.block, (self.width - self.k) // 3))
        mix = ritz.vectors[:, :keep].T
        self.basis[:keep] = mix @ self.basis[: self.size]
        self.images[:keep] = mix @ self.images[: self.size]
        self.projection.zero_()
        self.projection[:keep, :keep] = torch.diag(ritz.values[:keep])
        self.size = keep
        wanted = slice(0, self.k)
        return torch.addcmul(self.images[wanted], self.basis[wanted], ritz.values[wanted, None], value=-1)

    def _missed(self, values: Tensor) -> bool:
        """Return whether a random search outside the basis finds an eigenvalue above the smallest one found.

        A Krylov space holds at most as many vectors of a repeated eigenvalue as its blocks have, and residuals do not
        show this. What is found stays in the basis.
        """
        last = float(values[-1])
        margin = OWN * self.tolerance * abs(last) + floor(self.source, self.scale)
        first = self.size
        block, _ = self._orthonormal(self._random(min(_PROBES, (self.width - self.size) // _PROBE_STEPS)))
        for _ in range(_PROBE_STEPS):
            if not block.shape[0]:
                break
            block, _ = self._orthonormal(*self._outside(self._append(block)))
        if self.size == first:
            return False
        found = torch.linalg.eigvalsh(self.projection[first : self.size, first : self.size])
        return float(found[-1]) > last + margin

    def _refusal(self, values: Tensor, residuals: Tensor, limit: Tensor) -> TangentError:
        worst = int((residuals / limit).argmax())
        return TangentError(
            f"After {_RESTARTS} restarts the residual of eigenpair {worst + 1} (eigenvalue {float(values[worst]):.3g}) "
            f"is {float(residuals[worst]):.3g}, more than the {float(limit[worst]):.3g} allowed.",
            why=f"The kernel in {self.source.dtype} may not be accurate enough, or eigenvalues are clustered there.",
            remedy="Request fewer pairs, pass a larger tolerance, or compute the kernel in float64.",
        )
