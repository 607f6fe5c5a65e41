"""Regression without a kernel matrix, for numbers of samples at which no matrix fits.

    >>> from tangentlab import solvers
    >>> fit = solvers.sketched_regression(model, x, targets, k=2048, folder="runs/fit")   # rerun to resume
    >>> fit.best, fit.predict(x_test)

:func:`sketched_regression` reads the samples once and solves k x k normal equations in sketched feature space. For
exact kernels, :func:`tangentlab.linalg.regress` takes a :class:`tangentlab.NTKOperator`, whose products need no matrix
either.
"""

from tangentlab.solvers._sketched import Milestone, SketchedRegression, sketched_regression

__all__ = ["Milestone", "SketchedRegression", "sketched_regression"]
