"""Kernel regression: one function for all kernel sources and solvers."""

from typing import Any, Literal

from tangentlab._errors import TangentError
from tangentlab._scaling import number
from tangentlab.linalg._forms import as_source, written_out
from tangentlab.linalg._regression import Regression, finish, ridge_alone
from tangentlab.linalg._solvers import SOLVERS, System, choose
from tangentlab.linalg._symmetry import as_ridge
from tangentlab.linalg._targets import as_columns

Method = Literal["auto", "cholesky", "mixed", "eigen", "cg"]
_DOMINATED = 2.0**-60
"""A kernel whose largest eigenvalue is below this share of the ridge does not change any digit of the answer."""


def regress(
    kernel: Any,
    targets: Any,
    *,
    f0: Any = None,
    ridge: float = 0.0,
    method: Method = "auto",
    tolerance: float | None = None,
    rank: int | None = None,
    iterations: int = 1000,
    seed: int = 0,
    progress: bool | None = None,
) -> Regression:
    r"""Fit kernel regression with prior mean f0: :math:`(K + \rho) a = y - f_0`, :math:`f(x) = f_0(x) + K(x, X)\, a`.

    With ridge 0, this is the minimum-norm solution u = J^T a of y - f0 = J u; J is never formed.

    Cost and memory depend on the method:

    - ``"cholesky"``: float64, in place on the tiles of one triangle; n^3/3 operations, 4 n^2 bytes besides the kernel.
    - ``"mixed"``: the same in float32, half the memory and time; its factor preconditions conjugate gradients in
      float64 (accelerated iterative refinement). Refused if the conditioning does not allow it.
    - ``"eigen"``: all eigenpairs, about 10 n^3 operations and 24 n^2 bytes. Rank-revealing: eigenvalues that are zero
      up to rounding are left out, which gives the least-squares solution of least norm. For a :class:`LowRank`, through
      its features, n k^2.
    - ``"cg"``: conjugate gradients with the Nystrom preconditioner; only products, one with ``rank`` vectors and one
      per iteration with all targets, n rank^2 operations and 8 n rank bytes.
    - ``"auto"``: eigen for a LowRank; cholesky (mixed if only that fits into memory) for a readable kernel, and eigen
      if the kernel is found to be singular; cg for an operator of more than 4,096 rows.

    Args:
        kernel: A kernel source, see :mod:`tangentlab.linalg`. It is not changed.
        targets: y, (N,) or (N, R); (N, L) or flat (N L,) for a kernel (N, L, N, L) or an operator of N L rows. Integers
            of more than two values are refused as class numbers; floating-point numbers are quantities.
        f0: The prior mean at the training points, in the shape of ``targets``; zero by default.
        ridge: rho, added to the diagonal as it is, not multiplied by N.
        method: See above.
        tolerance: The largest ||(K + ridge) a - b|| / ||b|| of ``"mixed"`` and ``"cg"``. By default 1e-10, and 1e-5 for
            operators in float32.
        rank: The rank of the preconditioner of ``"cg"``; by default about 2 sqrt(n).
        iterations: The largest number of products of ``"cg"``.
        seed: The seed of the preconditioner.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Raises:
        TangentError: Shapes do not fit; the kernel is indefinite, or singular and the method cannot handle it (the
            message has the smallest eigenvalue and a ridge to try); or the answer is out of the range of float64.

    Warns:
        RuntimeWarning: A regular system is solved only to a residual above 1e-6; or a negative eigenvalue (rounding of
            a float32 kernel) makes eigenvalues unreliable that the targets need, and these are left out.

    Examples:
        >>> import torch
        >>> from tangentlab import linalg, ntk
        >>> model, x = torch.nn.Linear(3, 2), torch.randn(8, 3)
        >>> kernel = ntk(model, x, readout="pntk")
        >>> fit = linalg.regress(kernel, torch.randn(8, 2), ridge=0.1)
        >>> fit.predict(ntk(model, torch.randn(3, 3), x, readout="pntk")).shape
        torch.Size([3, 2])

    See also:
        :func:`tangentlab.linalg.ridge_path`, :func:`tangentlab.solvers.sketched_regression`,
        :class:`tangentlab.training.GradientFlow`.
    """
    ridge = as_ridge(ridge)
    _check_options(tolerance, rank, iterations)
    source = as_source(kernel).unit()
    data = as_columns(source.n, source.outputs, source.device, targets, f0)
    chosen = choose(source) if method == "auto" else method
    solve = SOLVERS.get(chosen)
    if solve is None:
        raise TangentError(
            f"There is no method {method!r}.", remedy='Use "auto", "cholesky", "mixed", "eigen" or "cg".'
        )
    if chosen in ("cholesky", "mixed") and not (source.readable or source.remote):
        source = written_out(source)
    unit_ridge = number(ridge, -source.exponent)
    if source.n * source.size < unit_ridge * _DOMINATED:
        image = source.accurate_product(data.columns)
        return ridge_alone(data, image, ridge=ridge, exponent=source.exponent, method=chosen)
    system = System(source, data.columns, unit_ridge, method == "auto", tolerance, rank, iterations, seed, progress)
    found = solve(system)
    return finish(
        found,
        data,
        source.accurate_product(found.coefficients),
        ridge=ridge,
        unit_ridge=unit_ridge,
        exponent=source.exponent,
        accepted=max(system.tolerance, 1e-6, 1e3 * source.accuracy),
    )


def _check_options(tolerance: float | None, rank: int | None, iterations: int) -> None:
    if tolerance is not None and not 0 < tolerance < 1:
        raise TangentError(f"The tolerance {tolerance} is not between 0 and 1.", remedy="Use for example 1e-8.")
    for name, value in (("rank", rank), ("iterations", iterations)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise TangentError(f"The {name} {value!r} is not a positive whole number.", remedy="Use for example 100.")
