"""The papers' measures of a kernel and its network, one function per measure.

>>> from tangentlab import NTKOperator, analysis, linalg, ntk
>>> spectrum = linalg.eigh(ntk(network, x, readout=0), 50)
>>> analysis.energy_concentration(spectrum, y, k=50)                      # ||Phi_K y|| / ||y||
>>> analysis.alignment(NTKOperator(network, x, readout=0), functions)     # for 1,000 functions, without the kernel
>>> nads = analysis.anisotropy_directions(network, input_shape=(1, 32, 32), k=10)
>>> print(analysis.agreement(ntk(network, x), ntk(network, x, readout="pntk")))
>>> solution = analysis.minimum_norm(network, x, y)                       # y - f0 = J u, J never formed
>>> analysis.rank_models({"mlp": mlp, "lenet": lenet}, x, y)               # by predicted error, without training

Along training: ``train(..., callbacks=[analysis.spectrum_callback(x)])``, then ``analysis.along_training(result, y)``.
Kernels are kernel sources, see :mod:`tangentlab.linalg`.
"""

from tangentlab.analysis._agreement import Agreement, Pair, agreement
from tangentlab.analysis._alignment import alignment
from tangentlab.analysis._alignments import Alignments, alignments
from tangentlab.analysis._along import alignment_callback, along_training, spectrum_callback
from tangentlab.analysis._anisotropy import NADs, anisotropy_directions, linear_alignment
from tangentlab.analysis._checkpoints import CheckpointComparison, compare_checkpoints
from tangentlab.analysis._cross_validation import ErrorPrediction, predicted_error
from tangentlab.analysis._energy import energy_concentration
from tangentlab.analysis._minimum_norm import MinimumNorm, minimum_norm
from tangentlab.analysis._path import linearization_along, linearization_callback, straight_path
from tangentlab.analysis._rank_models import rank_models
from tangentlab.analysis._regression_agreement import RegressionAgreement, regression_agreement
from tangentlab.analysis._rkhs import generalization_bound, lemma1_bound, rkhs_norm
from tangentlab.analysis._rotation import Rotation, kernel_distance, rotation

__all__ = [
    "Agreement",
    "Alignments",
    "CheckpointComparison",
    "ErrorPrediction",
    "MinimumNorm",
    "NADs",
    "Pair",
    "RegressionAgreement",
    "Rotation",
    "agreement",
    "alignment",
    "alignment_callback",
    "alignments",
    "along_training",
    "anisotropy_directions",
    "compare_checkpoints",
    "energy_concentration",
    "generalization_bound",
    "kernel_distance",
    "lemma1_bound",
    "linear_alignment",
    "linearization_along",
    "linearization_callback",
    "minimum_norm",
    "predicted_error",
    "rank_models",
    "regression_agreement",
    "rkhs_norm",
    "rotation",
    "spectrum_callback",
    "straight_path",
]
