"""The face of this package to its siblings: finished results, names of variants, and the look of charts.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.experiments`` does not export; tests compare the list with what they use.
"""

from tangentlab.experiments._figure import VEGA_LITE, config
from tangentlab.experiments._record import load
from tangentlab.experiments._variant import check_variant

__all__ = [
    "VEGA_LITE",
    "check_variant",
    "config",
    "load",
]
