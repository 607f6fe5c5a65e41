"""The face of this package to its siblings: the rules for targets and ridges, errors by ridge, blocks of rows, a
refusal, and how a solution at unit size becomes a regression.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.linalg`` does not export; tests compare the list with what they use.
"""

from tangentlab.linalg._regression import Solved, add_prior, finish
from tangentlab.linalg._ridge_errors import RidgeErrors
from tangentlab.linalg._symmetry import as_ridge, spans
from tangentlab.linalg._targets import Targets, as_columns, as_targets, real

__all__ = [
    "RidgeErrors",
    "Solved",
    "Targets",
    "add_prior",
    "as_columns",
    "as_ridge",
    "as_targets",
    "finish",
    "real",
    "spans",
]
