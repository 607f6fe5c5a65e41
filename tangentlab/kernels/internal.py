"""The face of this package to its siblings: the parts of the engine from which they build.

This is not public API: a name may change or vanish in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.kernels`` does not export; tests compare the list with what they use.

- A problem: ``Network``, ``Samples``, ``ReadoutLike``, ``ParametersLike``, and ``Engine`` with its ``Budget``.
- Factors of samples, and tiles of the kernel from them: ``Group``, ``Factors``, ``contract``; to disk and back:
  ``in_own_memory``, ``read_factors``, ``read_into``, ``size_in_bytes``, ``write_factors``.
- What a forward pass does: ``Recording``, ``Chance``, ``generators``, ``same_generators``, ``tensors``.
- Plain gradients and checks of values: ``gradient``, ``put_right``, ``all_finite``.
"""

from tangentlab.kernels._chance import Chance, generators, same_generators
from tangentlab.kernels._contract import contract
from tangentlab.kernels._engine import Engine
from tangentlab.kernels._factorize import Factors
from tangentlab.kernels._fallback import gradient
from tangentlab.kernels._inputs import Samples, all_finite
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._network import Network, ParametersLike, Recording
from tangentlab.kernels._plan import Group
from tangentlab.kernels._readout import ReadoutLike
from tangentlab.kernels._sound import put_right
from tangentlab.kernels._spill import in_own_memory, read_factors, read_into, size_in_bytes, write_factors
from tangentlab.kernels._trust import tensors

__all__ = [
    "Budget",
    "Chance",
    "Engine",
    "Factors",
    "Group",
    "Network",
    "ParametersLike",
    "ReadoutLike",
    "Recording",
    "Samples",
    "all_finite",
    "contract",
    "generators",
    "gradient",
    "in_own_memory",
    "put_right",
    "read_factors",
    "read_into",
    "same_generators",
    "size_in_bytes",
    "tensors",
    "write_factors",
]
