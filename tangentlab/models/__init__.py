"""The papers' networks, built by name.

    >>> from tangentlab import models
    >>> network = models.build("lenet", width=5, outputs=10, init="lecun", seed=0)

Every network is a plain ``nn.Module`` from (N, C, H, W) to (N, outputs). :func:`available` lists the names
with their options and sources as data.
"""

from tangentlab.models._build import build
from tangentlab.models._layers import ACTIVATIONS, INITS, NTKConv2d, NTKLinear, lecun_normal_
from tangentlab.models._registry import COMMON_OPTIONS, Architecture, Option, available

__all__ = [
    "ACTIVATIONS",
    "COMMON_OPTIONS",
    "INITS",
    "Architecture",
    "NTKConv2d",
    "NTKLinear",
    "Option",
    "available",
    "build",
    "lecun_normal_",
]
