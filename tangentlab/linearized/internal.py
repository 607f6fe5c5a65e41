"""The parts of linearized models that other packages of tangentlab use.

This is not public API: a name may change or be removed in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.linearized`` does not export; tests compare the list with what they use.
"""

from tangentlab.linearized._statistics import set_statistics

__all__ = ["set_statistics"]
