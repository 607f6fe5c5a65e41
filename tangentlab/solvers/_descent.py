"""Accelerated block coordinate descent: its state, a step, and the choice of the momentum."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._scaling import number
from tangentlab.linalg import PackedCholesky, as_source
from tangentlab.solvers._access import Access

_FIRST = 0.3
"""The strength of convexity that is assumed at first, in units of b / n, which is its largest possible value."""
_TRUST = 0.5
"""The share of the measured one that is used: too small a value costs less than too large a one."""


@dataclass
class State:
    """The state of the descent between two steps.

    Attributes:
        z: Where residuals are taken, (n, m).
        v: The sequence that carries the momentum, (n, m).
        alpha: The share of v in z; the solution is (z - alpha v) / (1 - alpha).
        strength: The strength mu of convexity that the momentum is chosen by.
        passes: Finished passes over the blocks.
        steps: Finished steps of the present pass.
        squares: Squared norms of the residuals seen in the present pass, (m,).
    """

    z: Tensor
    v: Tensor
    alpha: float
    strength: float
    passes: int
    steps: int
    squares: Tensor

    @classmethod
    def begin(cls, right: Tensor, blocks: int) -> "State":
        """Return the start, z = v = 0."""
        zero = torch.zeros_like(right)
        return cls(zero, zero.clone(), 0.0, _FIRST / blocks, 0, 0, torch.zeros_like(right[0]))

    def solution(self) -> Tensor:
        """Compute the solution so far, (n, m)."""
        return (self.z - self.alpha * self.v) / (1 - self.alpha)


class Descent:
    r"""The solution of (K + rho) a = y by blocks B of rows that partition all rows anew in every pass.

    .. math:: \delta = (K_{BB} + \rho)^{-1} (y_B - K_B z - \rho z_B), \quad w = z + I_B \delta, \quad
        v \leftarrow \beta v + (1 - \beta) z + \gamma I_B \delta, \quad z = \alpha v + (1 - \alpha) w

    with the momentum of ASkotch (Rathore et al. 2024): beta = 1 - sqrt(mu / nu), gamma = 1 / sqrt(mu nu),
    alpha = 1 / (1 + gamma nu), nu = n / b. Blocks are solved exactly, and mu is estimated from the progress of the
    passes.

    Args:
        access: The kernel.
        right: y, (n, m).
        ridge: rho.
        block: b, the number of rows in a block.
        seed: The seed of the partitions.
    """

    def __init__(self, access: Access, right: Tensor, ridge: float, block: int, seed: int) -> None:
        self.access, self.right, self.ridge, self.seed = access, right, ridge, seed
        self.units = -(-access.n // access.unit)
        self.width = max(1, min(self.units, block // access.unit))
        self.blocks = -(-self.units // self.width)

    def partition(self, number: int) -> list[Tensor]:
        """Draw the blocks of a pass, which depend on nothing but the seed and its number."""
        generator = torch.Generator().manual_seed((self.seed * 1_000_003 + number) % 2**63)
        return list(torch.randperm(self.units, generator=generator).split(self.width))

    def step(self, state: State, units: Tensor) -> None:
        """Solve one block; about 2 n b m operations for products, b^3 / 3 for the block."""
        rows = self.access.rows(units)
        gram, image = self.access.system(units)
        gap = self.right[rows] - image - self.ridge * state.z[rows]
        state.squares += gap.square().sum(0)
        change = self._solved(gram, gap)
        alpha, beta, gamma = self._momentum(state.strength)
        # The change of the solution is w - z on the block; v takes gamma of it.
        state.v.mul_(beta).add_(state.z, alpha=1 - beta)
        state.v[rows] += gamma * change
        state.z[rows] += change
        state.z.mul_(1 - alpha).add_(state.v, alpha=alpha)
        state.alpha = alpha
        self.access.move(change, alpha, beta, gamma)
        state.steps += 1

    def finish_pass(self, state: State, before: float | None) -> float:
        """Close a pass: return the residual seen in it, and choose the momentum of the next.

        Args:
            state: The state.
            before: The residual that was seen in the pass before.
        """
        size = self.right.norm(dim=0)
        seen = float((state.squares.sqrt() / torch.where(size > 0, size, 1.0)).max())
        state.squares = torch.zeros_like(state.squares)
        state.passes, state.steps = state.passes + 1, 0
        if before is not None and self.blocks > 1 and before > 0 and math.isfinite(seen):
            if seen >= before:
                self.settle(state)  # the momentum was too strong
                state.strength = self._bounded(4 * state.strength)
            elif seen > 0 and state.passes > 2:
                # A pass reduces the squared error by (1 - sqrt(mu / nu))^nu.
                rate = (seen / before) ** (2 / self.blocks)
                measured = _TRUST * self.blocks * (1 - rate) ** 2
                state.strength = self._bounded(math.sqrt(state.strength * measured))
        return seen

    def settle(self, state: State) -> None:
        """Set z and v to the solution, without momentum."""
        self.access.settle(state.alpha)
        state.z.copy_(state.solution())
        state.v.copy_(state.z)
        state.alpha = 0.0

    def _bounded(self, strength: float) -> float:
        return min(1 / self.blocks, max(1e-3 / self.blocks, strength))

    def _momentum(self, strength: float) -> tuple[float, float, float]:
        if self.blocks == 1:
            return 0.0, 0.0, 1.0
        beta, gamma = 1 - math.sqrt(strength / self.blocks), 1 / math.sqrt(strength * self.blocks)
        return 1 / (1 + gamma * self.blocks), beta, gamma

    def _solved(self, gram: Tensor, gap: Tensor) -> Tensor:
        """Solve a block.

        Raises:
            TangentError: It is not positive definite, and so the kernel is not.
        """
        factor = PackedCholesky(as_source(gram), self.ridge, tile=512)
        if factor.failed is None:
            # A random column in addition: its solution is as large as the smallest eigenvalue is small.
            generator = torch.Generator().manual_seed(0x5EED_0002)
            extra = torch.randn(len(gap), 1, generator=generator, dtype=torch.float64).to(gap.device)
            solved = factor.solve(torch.cat([gap, extra], 1))
            level = len(gram) * torch.finfo(torch.float64).eps * float(gram.diagonal().max())
            if float(extra.norm() / solved[:, -1].norm()) > level:
                return solved[:, :-1]
        exponent = self.access.source.exponent
        size = number(len(gram) * float(gram.diagonal().max()), exponent)
        raise TangentError(
            f"A block of {len(gram):,} rows of the kernel plus ridge {number(self.ridge, exponent):.3g} is not "
            "positive definite.",
            "The kernel is singular, or its rounding errors are as large as its small eigenvalues.",
            f"Use ridge={1e-8 * size:.3g} or more, or a kernel in float64.",
        )
