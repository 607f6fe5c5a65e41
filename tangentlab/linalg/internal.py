"""The face of this package to its siblings: the rules for targets and ridges, blocks of rows, a refusal.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.linalg`` does not export; tests compare the list with what they use.
"""

from tangentlab.linalg._least_squares import SingularJacobian
from tangentlab.linalg._symmetry import as_ridge, spans
from tangentlab.linalg._targets import as_columns, as_targets, real

__all__ = [
    "SingularJacobian",
    "as_columns",
    "as_ridge",
    "as_targets",
    "real",
    "spans",
]
