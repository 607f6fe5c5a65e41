"""The parts of the engine that other packages of tangentlab use.

This is not public API: a name may change or be removed in any release. It is the only way by which other packages of
tangentlab import what ``tangentlab.kernels`` does not export; tests compare the list with what they use.

- A problem and its plan: ``Options``, ``Problem``, ``make_plan``, ``Plan``, ``run``, ``Budget``; for changing
  weights: ``RepeatedKernel``; their parts:
  ``Network``, ``Samples``, ``Batch``, ``as_tensors``, ``refuse_shuffled``, ``ReadoutLike``, ``takes_targets``,
  ``ParametersLike``; what a model returns: ``logits_of``.
- Factors of samples, and tiles of the kernel from them: ``Factors``, ``contract``, ``verify``; to disk and back:
  ``in_own_memory``, ``read_factors``, ``read_into``, ``size_in_bytes``, ``write_factors``; how fast a disk is:
  ``DiskRates``, ``existing``, ``measure_disk``.
- The Jacobian of kept factors: ``KeptJacobian``, ``keep_jacobian``.
- Rows of an operator's kernel for some samples at a time: ``RowAccess``, ``Rows``, ``ControlFlowChanged``.
- What a forward pass does: ``Recording``, ``RandomDraws``, ``generators``, ``same_generators``, ``tensors``.
- Plain gradients and checks of values: ``gradient``, ``correct_gradient``, ``all_finite``.
"""

from tangentlab.kernels._contract import contract
from tangentlab.kernels._disk import DiskRates, existing, measure_disk
from tangentlab.kernels._factorize import ControlFlowChanged
from tangentlab.kernels._fallback import gradient
from tangentlab.kernels._inputs import Batch, Samples, all_finite, as_tensors, refuse_shuffled
from tangentlab.kernels._jacobian import KeptJacobian, keep_jacobian
from tangentlab.kernels._memory import Budget
from tangentlab.kernels._network import Network, ParametersLike, Recording, logits_of
from tangentlab.kernels._norm_gradients import correct_gradient
from tangentlab.kernels._options import Options
from tangentlab.kernels._plan import Plan, make_plan, run
from tangentlab.kernels._problem import Problem
from tangentlab.kernels._random_draws import RandomDraws, generators, same_generators
from tangentlab.kernels._readout import ReadoutLike, takes_targets
from tangentlab.kernels._repeated import RepeatedKernel
from tangentlab.kernels._row_moves import tensors
from tangentlab.kernels._rows import RowAccess, Rows
from tangentlab.kernels._spill import in_own_memory, read_factors, read_into, size_in_bytes, write_factors
from tangentlab.kernels._verify import verify
from tangentlab.kernels.factors import Factors

__all__ = [
    "Batch",
    "Budget",
    "ControlFlowChanged",
    "DiskRates",
    "Factors",
    "KeptJacobian",
    "Network",
    "Options",
    "ParametersLike",
    "Plan",
    "Problem",
    "RandomDraws",
    "ReadoutLike",
    "Recording",
    "RepeatedKernel",
    "RowAccess",
    "Rows",
    "Samples",
    "all_finite",
    "as_tensors",
    "contract",
    "correct_gradient",
    "existing",
    "generators",
    "gradient",
    "in_own_memory",
    "keep_jacobian",
    "logits_of",
    "make_plan",
    "measure_disk",
    "read_factors",
    "read_into",
    "refuse_shuffled",
    "run",
    "same_generators",
    "size_in_bytes",
    "takes_targets",
    "tensors",
    "verify",
    "write_factors",
]
