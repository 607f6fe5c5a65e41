"""A network's tangent kernel and outputs as parts of a GPyTorch model; needs the extra ``tangentlab[gp]``.

    >>> from tangentlab import gp
    >>> class Model(gpytorch.models.ExactGP):
    ...     def __init__(self, x, y, likelihood):
    ...         super().__init__(x, y, likelihood)
    ...         self.mean_module = gp.NetworkMean(network)
    ...         self.covar_module = gpytorch.kernels.ScaleKernel(gp.NTKKernel(network))
    ...     def forward(self, x):
    ...         return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

The posterior mean is kernel ridge regression with prior mean f0, to which the linearized network converges when it is
trained on squared loss; the noise of the likelihood is the ridge.
"""

from importlib.util import find_spec

from tangentlab._extras import missing

if find_spec("gpytorch") is None:
    raise missing("GPyTorch", "gp", "The package tangentlab.gp needs it.")

from tangentlab.gp._kernel import NTKKernel
from tangentlab.gp._mean import NetworkMean

__all__ = ["NTKKernel", "NetworkMean"]
