"""The face of this package to its siblings: the sentences that the page opens with.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.report`` does not export; tests compare the list with what they use.
"""

from tangentlab.report._story import in_numbers, tell

__all__ = [
    "in_numbers",
    "tell",
]
