"""The face of this package to its siblings: whether a store is there, which kernel it is of, the weights it keeps,
and digests of values, code and weights.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.store`` does not export; tests compare the list with what they use.
"""

from tangentlab.store._array import DTYPES, exists, stored_weights
from tangentlab.store._digest import Digest
from tangentlab.store._files import sweep
from tangentlab.store._hashes import sample_hashes, weights_hash
from tangentlab.store._manifest import unrounded
from tangentlab.store._setup import Request, recognize
from tangentlab.store._weights import named_weights, restore_weights, same_weights

__all__ = [
    "DTYPES",
    "Digest",
    "Request",
    "exists",
    "named_weights",
    "recognize",
    "restore_weights",
    "same_weights",
    "sample_hashes",
    "stored_weights",
    "sweep",
    "unrounded",
    "weights_hash",
]
