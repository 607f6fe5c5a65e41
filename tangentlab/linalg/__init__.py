"""Linear algebra of kernels: eigenpairs, kernel regression, ridge paths, ranks. Independent of networks.

A *kernel source* is a tensor or array (N, N) or (N, L, N, L); an object with ``shape``, ``dtype``, ``device``, ``@``
and ``diagonal()``, such as :class:`tangentlab.NTKOperator` or :class:`LowRank`; one that also has
``read(rows, columns)``, such as a kernel on disk or a :class:`Part` of it; or a SciPy ``LinearOperator``. Results are
in float64, on the device of the kernel.

Kernels, targets and ridges may have any scale that float64 can represent: everything is computed at unit size, after an
exact scaling by a power of two; a result outside the range of float64 is refused. All functions take the same targets:
real finite values on the kernel's rows, (N, L) one-hot for a kernel of N L rows; class numbers are refused.

>>> from tangentlab import linalg, ntk
>>> kernel = ntk(network, x, readout="pntk")
>>> spectrum = linalg.eigh(kernel, 1000)                             # leading eigenpairs with their residuals
>>> linalg.effective_rank(linalg.singular_values(kernel))
>>> fit = linalg.regress(kernel, y, f0=network(x), ridge=1e-3)
>>> fit.predict(ntk(network, x_test, x, readout="pntk"), f0=network(x_test))
>>> linalg.least_squares(jacobian, y - f0)                           # where K = J J^T would lose digits
>>> linalg.ridge_path(kernel, y).best                                # by exact leave-one-out
"""

from tangentlab.linalg._asymmetric import AsymmetricRegression, regress_asymmetric
from tangentlab.linalg._cholesky import PackedCholesky
from tangentlab.linalg._density import SpectralDensity, spectral_density
from tangentlab.linalg._eigen import eigh
from tangentlab.linalg._extremes import Extremes, extremes
from tangentlab.linalg._forms import as_source
from tangentlab.linalg._least_squares import LeastSquares, least_squares
from tangentlab.linalg._low_rank import LowRank
from tangentlab.linalg._nystrom import nystrom
from tangentlab.linalg._part import Part
from tangentlab.linalg._ranks import condition_number, effective_rank, singular_values, trace
from tangentlab.linalg._regress import regress
from tangentlab.linalg._regression import Regression
from tangentlab.linalg._ridge_path import RidgePath, ridge_path
from tangentlab.linalg._source import Source
from tangentlab.linalg._spectrum import Spectrum
from tangentlab.linalg._symmetry import rank_cutoff, require_positive, require_symmetric
from tangentlab.linalg._targets import refuse_class_numbers

__all__ = [
    "AsymmetricRegression",
    "Extremes",
    "LeastSquares",
    "LowRank",
    "PackedCholesky",
    "Part",
    "Regression",
    "RidgePath",
    "Source",
    "SpectralDensity",
    "Spectrum",
    "as_source",
    "condition_number",
    "effective_rank",
    "eigh",
    "extremes",
    "least_squares",
    "nystrom",
    "rank_cutoff",
    "refuse_class_numbers",
    "regress",
    "regress_asymmetric",
    "require_positive",
    "require_symmetric",
    "ridge_path",
    "singular_values",
    "spectral_density",
    "trace",
]
