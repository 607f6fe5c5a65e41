"""The face of this package to its siblings: the sentences that the page opens with, and the parts of any page.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.report`` does not export; tests compare the list with what they use.
"""

from tangentlab.report._assets_of import asset as style
from tangentlab.report._assets_of import normalized, policy
from tangentlab.report._charts import bundle, themes
from tangentlab.report._story import failed, in_numbers, tell

__all__ = [
    "bundle",
    "failed",
    "in_numbers",
    "normalized",
    "policy",
    "style",
    "tell",
    "themes",
]
