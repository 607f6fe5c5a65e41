"""The parts of the training loop that other packages of tangentlab use.

This is not public API: a name may change or be removed in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.training`` does not export; tests compare the list with what they use.
"""

from tangentlab.training._measure import answer
from tangentlab.training._samples import IndexedSamples

__all__ = ["IndexedSamples", "answer"]
