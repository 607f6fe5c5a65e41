"""BatchNorm in training mode: an evaluation mode at the statistics of a batch."""

from torch import nn

from tangentlab._copying import copy_model
from tangentlab.kernels.internal import Samples
from tangentlab.linearized.internal import set_statistics

_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_BATCH = 256


def at_batch_statistics(model: nn.Module, samples: Samples) -> tuple[nn.Module, str]:
    """Return a copy in evaluation mode; BatchNorm in training mode gets the statistics of the samples first.

    The kernel of a network in training mode is not defined sample by sample: each output depends on the whole batch.
    With the mean and variance of the samples as its running statistics, every BatchNorm computes what it would compute
    on them as one batch, up to the gradient through these statistics. Dropout is left out.

    Cost: a copy of the network, and one forward pass of all samples if there is a BatchNorm in training mode.

    Returns:
        The copy, and a note on what was done, empty if nothing was.
    """
    twin = copy_model(model)
    norms = [module for module in twin.modules() if isinstance(module, _NORMS)]
    active = [module for module in norms if module.training and module.track_running_stats]
    if not active:
        return twin.eval(), ""
    starts = range(0, len(samples), _BATCH)
    batches = (samples.batch(slice(start, min(start + _BATCH, len(samples)))).inputs for start in starts)
    set_statistics(twin, active, batches)
    return twin, f"{len(active)} BatchNorm layers in evaluation mode, at the statistics of the samples"
