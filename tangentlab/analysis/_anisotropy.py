"""Neural anisotropy directions (ortiz2021, section 3.2)."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab._memory import available, parse_bytes
from tangentlab._sums import inner_columns
from tangentlab.analysis._mixed_derivative import GramOperator, MixedDerivative

_SHARE = 0.6
"""Share of the free memory that is taken if the user sets no budget."""


@dataclass(frozen=True)
class NADs:
    """Neural anisotropy directions, the best aligned first.

    Attributes:
        directions: (k, *input_shape), orthonormal; ``tasks.nad(directions[i])`` is a data set along one of them.
        singular_values: (k,), the singular values of the mixed derivative, descending.
        alignments: (k,), their squares: by Theorem 1, the alignments alpha(g_v) of linear predictors g_v(x) = v . x.
        method: ``"explicit"`` or ``"matrix-free"``.
    """

    directions: Tensor
    singular_values: Tensor
    alignments: Tensor
    method: str

    def __len__(self) -> int:
        return len(self.singular_values)

    def __repr__(self) -> str:
        first, last = float(self.alignments[0]), float(self.alignments[-1])
        shape = tuple(self.directions.shape[1:])
        return f"NADs({len(self)} of {shape}, alignments {first:.4g} to {last:.4g}, {self.method})"


def anisotropy_directions(
    model: nn.Module,
    inputs: Tensor | None = None,
    *,
    input_shape: tuple[int, ...] | None = None,
    k: int | None = None,
    method: str = "auto",
    memory_budget: int | float | str | None = None,
    seed: int = 0,
    **options: Any,
) -> NADs:
    r"""Compute the neural anisotropy directions of a network: right singular vectors of its mixed derivative,

    .. math:: M = E_x\, \nabla^2_{\theta, x} f_\theta(x) \in R^{P \times d}, \qquad M v_j = \sigma_j u_j

    By Theorem 1 of ortiz2021, the linear predictor g_v(x) = v . x has alignment ||M v||^2 with the NTK for Gaussian
    inputs, so that v_j has sigma_j^2. The authors evaluate M at x = 0 ("a first order approximation of the
    expectation") and use GELU: the second derivative of a ReLU network misses the effect of its kinks.

    Cost: the explicit method takes d double backward passes per input, then an SVD, about 6 P d^2 operations, and
    24 P d bytes. The matrix-free method computes leading eigenpairs of M^T M by :func:`tangentlab.linalg.eigh` from
    products, with two double backward passes per vector and input; the error of singular values is then sqrt(eps) of
    the largest.

    Args:
        model: Any network; in evaluation mode.
        inputs: (N, *input_shape) over which M is averaged, for example Gaussian ones; None for the origin.
        input_shape: The shape of one input, if ``inputs`` is None.
        k: The number of directions; None for all d.
        method: ``"explicit"``, ``"matrix-free"`` or ``"auto"``: explicit if it fits the memory budget, unless few
            directions of a large M are wanted.
        memory_budget: Bytes ("4GiB"); None for 60 % of the free memory.
        seed: The seed of the block method's random start.
        options: ``readout`` ("pntk", or an int for one output), ``parameters``, ``dtype``, ``device`` and
            ``batch_size`` as for :func:`tangentlab.ntk`.

    Raises:
        TangentError: M is zero, or arguments do not fit.

    Examples:
        >>> from tangentlab import analysis, models
        >>> network = models.build("mlp", input_shape=(1, 4, 4), outputs=1, hidden=(8,), seed=0)
        >>> directions = analysis.anisotropy_directions(network, input_shape=(1, 4, 4), k=3)
        >>> type(directions).__name__
        'NADs'

    See also:
        :func:`tangentlab.analysis.linear_alignment`, :func:`tangentlab.plot.directions`,
        :func:`tangentlab.tasks.nad`.
    """
    mixed = _mixed(model, inputs, input_shape, options)
    parameters, dimensions = mixed.shape
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= dimensions):
        raise TangentError(
            f"There are no k={k!r} directions of {dimensions:,}.", remedy=f"Give k from 1 to {dimensions:,}, or None."
        )
    wanted = dimensions if k is None else k
    total = int(_SHARE * available(mixed.device)) if memory_budget is None else parse_bytes(memory_budget)
    size = torch.empty((), dtype=mixed.dtype).element_size()
    # A block passes through the network at once; its vectors are in both spaces, with a copy in between.
    columns = max(1, min(64, total // (8 * size * (parameters + dimensions))))
    if method == "auto":
        fits = 3 * 8 * parameters * dimensions <= total
        few = 8 * wanted <= dimensions and parameters * dimensions > 2**26
        method = "explicit" if fits and not few else "matrix-free"
    if method == "explicit":
        values, vectors = _explicit(mixed, columns)
    elif method == "matrix-free":
        spectrum = linalg.eigh(GramOperator(mixed, columns), wanted, seed=seed, progress=False)
        values, vectors = spectrum.values.clamp(min=0).sqrt(), spectrum.vectors
    else:
        raise TangentError(f"There is no method {method!r}.", remedy='Use "auto", "explicit" or "matrix-free".')
    if not float(values[0]) > 0:
        raise TangentError(
            "The mixed derivative of inputs and weights is zero.",
            why="All directions are then equivalent.",
            remedy="Average over inputs away from the origin, or use a smooth activation such as GELU.",
        )
    values, vectors = values[:wanted], vectors[:, :wanted]
    return NADs(vectors.T.reshape(wanted, *mixed.input_shape), values, values.square(), method)


def linear_alignment(
    model: nn.Module,
    directions: Tensor,
    inputs: Tensor | None = None,
    **options: Any,
) -> Tensor:
    r"""Compute alignments of linear predictors by Theorem 1: :math:`\alpha(g_u) = \|E_x[\nabla^2_{\theta,x} f]\,u\|^2`.

    Cost: a double backward pass per direction and input. Memory: P numbers for each of up to 64 directions at a time.

    Args:
        model: The network.
        directions: (m, *input_shape), the u; g_u(x) = u . x.
        inputs: As for :func:`anisotropy_directions`; exact for Gaussian inputs, N(0, 1) in every coordinate.
        options: As for :func:`anisotropy_directions`.

    Returns:
        (m,) float64.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis, models
        >>> network = models.build("mlp", input_shape=(1, 4, 4), outputs=1, hidden=(8,), seed=0)
        >>> analysis.linear_alignment(network, torch.eye(16).reshape(16, 1, 4, 4)[:3], torch.randn(10, 1, 4, 4)).shape
        torch.Size([3])

    See also:
        :func:`tangentlab.analysis.anisotropy_directions`, :func:`tangentlab.analysis.alignment`.
    """
    mixed = _mixed(model, inputs, tuple(directions.shape[1:]), options)
    if tuple(directions.shape[1:]) != mixed.input_shape:
        raise TangentError(
            f"Directions {tuple(directions.shape[1:])} do not fit inputs {mixed.input_shape}.",
            remedy="Give (m, *input_shape).",
        )
    columns = directions.reshape(len(directions), -1).T.to(mixed.device)
    products = (mixed.product(part) for part in columns.split(64, 1))
    return torch.cat([inner_columns(product, product) for product in products])


def _mixed(
    model: nn.Module, inputs: Tensor | None, input_shape: tuple[int, ...] | None, options: dict[str, Any]
) -> MixedDerivative:
    if inputs is None:
        if input_shape is None:
            raise TangentError(
                "Neither inputs nor input_shape are given.",
                why="A network does not state the shape of its inputs.",
                remedy="Give for example input_shape=(1, 32, 32).",
            )
        if math.prod(input_shape) < 1:
            raise TangentError(f"The input_shape {input_shape} is empty.", remedy="Give for example (1, 32, 32).")
        inputs = torch.zeros(1, *input_shape)
    return MixedDerivative(model, inputs, **options)


def _explicit(mixed: MixedDerivative, columns: int) -> tuple[Tensor, Tensor]:
    unit = torch.eye(mixed.shape[1], dtype=mixed.dtype, device=mixed.device)
    matrix = torch.cat([mixed.product(part).double() for part in unit.split(columns, 1)], 1)
    _, values, right = torch.linalg.svd(matrix, full_matrices=False)
    if (
        len(values) < mixed.shape[1]
    ):  # fewer weights than input dimensions: the rest of the basis has singular value zero
        rest = torch.linalg.svd(matrix, full_matrices=True).Vh[len(values) :]
        values = torch.cat([values, values.new_zeros(len(rest))])
        right = torch.cat([right, rest])
    return values, right.T
