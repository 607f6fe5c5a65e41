"""Linearized networks: f(x; theta*) + J(x; theta*) (theta - theta0) as a module that trains like any other.

>>> import tangentlab
>>> lin = tangentlab.linearize(network)
>>> optimizer = torch.optim.SGD(lin.parameters(), lr=0.1)
>>> loss(lin(inputs), targets).backward()
>>> optimizer.step()
>>> tangentlab.linearized.linearization_error(lin, inputs)
>>> trained = lin.merge()                                 # a network with the learned weights
"""

from tangentlab.linearized._error import LinearizationError, linearization_error
from tangentlab.linearized._linearize import linearize
from tangentlab.linearized._module import Linearized
from tangentlab.linearized._statistics import estimate_statistics
from tangentlab.linearized._tasks import LinearizedTasks
from tangentlab.linearized._transformer import LinearizedTransformer

__all__ = [
    "LinearizationError",
    "Linearized",
    "LinearizedTasks",
    "LinearizedTransformer",
    "estimate_statistics",
    "linearization_error",
    "linearize",
]
