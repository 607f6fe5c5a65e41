"""The words of the grammar of random networks: small modules from (B, T, D) to (B, T, D).

Each is a function of the number of features D (even), the number of positions T, and options, so that a description of
a network is plain data: it can be drawn, shrunk, saved, and written out as a program of its own.
"""

from tests.kernels.blocks import content, dense, layers, parameters, regions, spatial, structure, uses
from tests.kernels.blocks._block import BLOCKS, Block

__all__ = ["BLOCKS", "Block", "content", "dense", "layers", "parameters", "regions", "spatial", "structure", "uses"]
