"""Regression where a kernel matrix does not fit into memory: without a matrix, or with one spread over a cluster.

    >>> from tangentlab import NTKOperator, solvers
    >>> fit = solvers.sketched_regression(model, x, targets, k=2048, folder="runs/fit")   # rerun to resume
    >>> fit.best, fit.predict(x_test)
    >>> operator = NTKOperator(model, x, readout="pntk", memory_budget="1GiB")
    >>> fit = solvers.block_regression(operator, targets, folder="runs/exact", memory_budget="2GiB")
    >>> fit.residual, fit.predict(x_test)

:func:`sketched_regression` reads the samples once and solves k x k normal equations in sketched feature space.
:func:`block_regression` solves for the exact kernel, of which it computes blocks on the diagonal only.
:func:`tangentlab.linalg.regress` takes a :class:`tangentlab.NTKOperator`, whose products need no matrix either, or a
:class:`DaskKernel`, a stored kernel whose linear algebra runs in a Dask cluster. :func:`method_costs` estimates what
each of these would take.
"""

from tangentlab.solvers._block_state import Pass
from tangentlab.solvers._blocks import BlockRegression, block_regression
from tangentlab.solvers._costs import Machine, MethodCost, method_costs, recommend
from tangentlab.solvers._dask_kernel import DaskKernel
from tangentlab.solvers._sketched import Milestone, SketchedRegression, sketched_regression

__all__ = [
    "BlockRegression",
    "DaskKernel",
    "Machine",
    "MethodCost",
    "Milestone",
    "Pass",
    "SketchedRegression",
    "block_regression",
    "method_costs",
    "recommend",
    "sketched_regression",
]
