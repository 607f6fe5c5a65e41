"""The cost model: what a form costs in arithmetic and in memory traffic.

Costs are in operations of a matrix product. Entrywise work and memory traffic are dearer than their count; the two
constants below say by how much, and were measured on a CPU. They only choose between exact forms, so being wrong
costs time, never accuracy.
"""

import math
from dataclasses import dataclass
from typing import Literal

from tangentlab.kernels.rules._convolution import Convolution
from tangentlab.kernels.rules._outer import Lookup, Outer
from tangentlab.kernels.rules._use import Use

ENTRYWISE = 12.0
"""Operations that one entry of an entrywise product is worth."""
STORE = 24.0
"""Operations that writing one number to memory is worth."""
SKETCH = 30.0
"""Operations that adding one entry of a gradient to a sketch is worth."""
SCATTER = 150.0
"""Operations that putting one number into its random place is worth."""
FFT = 10.0
"""Operations, times k log2 k, that a real Fourier transform of length k is worth."""


@dataclass(frozen=True)
class Work:
    """What factors are wanted for.

    Attributes:
        kind: "gram" for a kernel of ``rows`` x ``columns`` samples, "operator" for products, "diagonal" for blocks,
            "sketch" for projections of each gradient.
        rows: N1.
        columns: N2.
        symmetric: Whether only one triangle is computed.
        features: Length of a sketch.
    """

    kind: Literal["gram", "operator", "diagonal", "sketch"]
    rows: int
    columns: int
    symmetric: bool
    features: int = 0

    @property
    def pairs(self) -> float:
        """Pairs of samples to contract."""
        return self.rows * self.columns * (0.5 if self.symmetric else 1.0)

    @property
    def samples(self) -> int:
        """Samples to factorise."""
        return self.rows if self.symmetric else self.rows + self.columns


@dataclass(frozen=True)
class Cost:
    """Operations a pair of samples and a sample, and numbers kept of a sample."""

    pair: float
    sample: float
    floats: float


def written_out(use: Use, readouts: int) -> Cost:
    """The cost of gradients written out."""
    size = math.prod(use.shape)
    positions = 1
    if isinstance(use, Outer):
        positions = use.positions
    elif isinstance(use, Convolution):
        positions = _positions(use)
    return Cost(2 * readouts**2 * size, 2 * readouts * size * positions, readouts * size)


def compact(use: Use, readouts: int) -> Cost | None:
    """The cost of the compact form, or None where there is none."""
    squared = readouts**2
    if isinstance(use, Outer):
        t = use.positions
        d_in = use.a.shape[2]
        d_out = math.prod(use.shape) // max(1, d_in)
        pair = t * t * (2 * d_in + squared * (2 * d_out + ENTRYWISE))
        return Cost(pair, 0, t * (d_in + readouts * d_out))
    if isinstance(use, Lookup):
        t, d = use.index.shape[1], use.shape[1]
        return Cost(t * t * (ENTRYWISE + squared * (2 * d + ENTRYWISE)), 0, t * (1 + readouts * d))
    if isinstance(use, Convolution) and use.groups == 1 and not use.transposed and use.x.shape[1] == 1:
        pixels, t = math.prod(use.x.shape[3:]), _positions(use)
        d_out, channels = use.shape[:2]
        kernel = math.prod(use.shape[2:])
        pair = 2 * pixels**2 * channels + t * t * (ENTRYWISE * kernel + squared * (2 * d_out + ENTRYWISE))
        return Cost(pair, 0, pixels * channels + readouts * t * d_out)
    return None


def shape_of_factor(use: Use | None) -> tuple[object, ...]:
    """What two compact factors must have in common to be contracted with each other."""
    if isinstance(use, Outer):
        return Outer, use.positions == 1
    return (Convolution, _positions(use) == 1) if isinstance(use, Convolution) else (Lookup, False)


def compact_is_cheaper(use: Use, readouts: int, work: Work) -> bool:
    """Whether the compact form of a use is the better one for some work."""
    short = compact(use, readouts)
    if short is None:
        return False
    long = written_out(use, readouts)
    if work.kind == "gram":

        def total(c: Cost) -> float:
            return work.pairs * c.pair + work.samples * (c.sample + STORE * c.floats)

        return total(short) < total(long)
    if work.kind == "diagonal":
        return short.pair < long.sample + long.pair + STORE * long.floats
    if work.kind == "sketch":
        return _sketched(use, readouts, short, work.features) < long.sample + (STORE + SKETCH) * long.floats
    single = isinstance(use, Outer) and use.positions == 1
    return single or short.floats * 8 < long.floats or isinstance(use, Lookup)


def _sketched(use: Use, readouts: int, short: Cost, k: int) -> float:
    """The cost of sketching the compact form: a transform for the input and each output gradient of every position.

    It depends on nothing but the use and k: other samples of the same shape must get the same sketch.
    """
    if isinstance(use, Lookup):
        return (ENTRYWISE + STORE) * short.floats
    if isinstance(use, Outer):
        positions, d_in = use.positions, use.a.shape[2]
        unfolding = 0.0
    else:
        assert isinstance(use, Convolution)
        positions, d_in = _positions(use), math.prod(use.shape[1:])
        unfolding = STORE * d_in
    d_out = math.prod(use.shape) // max(1, d_in)
    transforms = (1 + readouts) * (FFT * math.log2(max(2, k)) + STORE) * k
    placing = unfolding + SKETCH * d_in + SCATTER * readouts * d_out
    return positions * (transforms + placing) + STORE * short.floats


def _positions(use: Convolution) -> int:
    """Output positions of a sample: kernel steps that fit into the padded image, over all its images."""
    if use.transposed:
        return math.prod(use.x.shape[3:]) * use.x.shape[1]
    return math.prod(use.outputs) * use.x.shape[1]
