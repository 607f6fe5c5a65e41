"""A kernel to look at: linked views of what it considers similar, what it learns first, and why it predicts so.

>>> import tangentlab
>>> page = tangentlab.explore(network, digits.train, classes=digits.classes)
>>> page.save("explorer.html")                                       # one file that loads nothing
>>> tangentlab.explore(network, x, labels=y, checkpoints={"start": start})     # with the kernel before training
>>> tangentlab.explore(tangentlab.store.open("kernel.zarr"), labels=y).serve()   # on loopback, loaded as asked
"""

from tangentlab.explorer._exploration import Exploration
from tangentlab.explorer._explore import explore
from tangentlab.explorer._server import Server
from tangentlab.explorer._state import State

__all__ = ["Exploration", "Server", "State", "explore"]
