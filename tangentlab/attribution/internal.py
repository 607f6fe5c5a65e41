"""The face of this package to its siblings: how single samples are shown.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.attribution`` does not export; tests compare the list with what they use.
"""

from tangentlab.attribution._picture import as_texts, check_shown, class_name, image_of

__all__ = ["as_texts", "check_shown", "class_name", "image_of"]
