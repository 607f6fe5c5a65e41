"""The cost model: which exact form is cheaper for some work.

Work is counted in three units: operations of matrix products, entries of entrywise products, and numbers written to
memory. :class:`Rates` says what the last two are worth on a device, see :mod:`~tangentlab.kernels._calibration`. They
only choose between exact forms, so a wrong rate costs time, never accuracy. What a form costs is known by the family of
operations itself, see :class:`~.rules.Use`.
"""

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tangentlab.kernels.factors import Factor
    from tangentlab.kernels.rules import Use


@dataclass(frozen=True)
class Rates:
    """What a device does in the time of one operation of a matrix product.

    The defaults were measured on a CPU.

    Attributes:
        entrywise: Operations that one entry of an entrywise product is worth, its summation included.
        store: Operations that writing one number to new memory is worth.
        speed: Operations of matrix products per second.
    """

    entrywise: float = 32.0
    store: float = 128.0
    speed: float = 1e11


DEFAULT = Rates()
_SKETCHING = Rates(12.0, 24.0)
"""The rates by which sketches choose, everywhere: the form decides which random numbers a sketch takes."""


@dataclass(frozen=True)
class Operations:
    """An amount of work.

    Plain numbers are operations of matrix products: ``2 * d + ENTRYWISE`` is an inner product of length d and one
    entry of an entrywise product.
    """

    products: float = 0.0
    entries: float = 0.0
    stores: float = 0.0

    def __add__(self, other: "Operations | float") -> "Operations":
        if not isinstance(other, Operations):
            other = Operations(other)
        return Operations(self.products + other.products, self.entries + other.entries, self.stores + other.stores)

    __radd__ = __add__

    def __mul__(self, factor: float) -> "Operations":
        return Operations(self.products * factor, self.entries * factor, self.stores * factor)

    __rmul__ = __mul__


ENTRYWISE = Operations(entries=1)
"""One entry of an entrywise product."""
STORE = Operations(stores=1)
"""Writing one number to memory."""
SKETCH = 30.0
"""Operations that adding one entry of a gradient to a sketch is worth."""
SCATTER = 150.0
"""Operations that putting one number into its random place is worth."""
FFT = 10.0
"""Operations, times k log2 k, that a real Fourier transform of length k is worth."""
PANEL_ROWS = 128
"""Rows of the products of a panel of a symmetric kernel, at least; a sample has one for each position and readout."""
PANELS = 10
"""Panels of rows that a small symmetric kernel is cut into, so that skipping a triangle pays."""
_FEWER = 8
"""How many times fewer numbers a compact form must keep to be worth more operations in products with vectors."""


def price(work: Operations | float, rates: Rates) -> float:
    """Return an amount of work in operations of matrix products."""
    if not isinstance(work, Operations):
        return work
    return work.products + rates.entrywise * work.entries + rates.store * work.stores


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
        by_layer: Whether layers are kept apart.
    """

    kind: Literal["gram", "operator", "diagonal", "sketch"]
    rows: int
    columns: int
    symmetric: bool
    features: int = 0
    by_layer: bool = False

    def pairs(self, readouts: int, product_rows: int = 1) -> float:
        """Return how many pairs of samples are contracted, each of which is some rows of the products."""
        return computed_pairs(self.rows, self.columns, readouts, self.symmetric, product_rows)

    @property
    def samples(self) -> int:
        """Samples to factorize."""
        return self.rows if self.symmetric else self.rows + self.columns


@dataclass(frozen=True)
class Cost:
    """What a form costs for R readouts.

    Attributes:
        pair: Operations per pair of samples.
        sample: Operations per sample to make it.
        floats: Numbers kept per sample.
        product: Operations per sample of a product with one vector, by J or J^T.
        sketch: Operations per sample of a sketch.
        expand: Operations per sample of writing gradients out when they are contracted.
        rows: Rows of the products between samples that one sample is.
    """

    pair: Operations | float
    sample: Operations | float
    floats: float
    product: float
    sketch: Operations | float
    expand: Operations | float = math.inf
    rows: int = 1

    def __rmul__(self, count: int) -> "Cost":
        """Return the cost of that many of them."""
        work = {field.name: count * getattr(self, field.name) for field in fields(self) if field.name != "rows"}
        return Cost(**work, rows=self.rows)


def computed_pairs(rows: int, columns: int, readouts: int, symmetric: bool, product_rows: int = 1) -> float:
    """Return how many pairs of samples are contracted: of a symmetric kernel, those of its panels.

    Few samples of one row each make one panel, which has both triangles.
    """
    if not symmetric:
        return float(rows * columns)
    entries = rows * readouts
    panels = -(-entries // max(-(-PANEL_ROWS // product_rows), -(-entries // PANELS)))
    return rows * columns * (1 + 1 / panels) / 2


def compact_is_cheaper(use: "Use", readouts: int, work: Work, rates: Rates = DEFAULT) -> bool:
    """Return whether the compact form of a use is the better one for some work."""
    short = use.compact_cost(readouts, work.features)
    if short is None:
        return False
    long = use.written_out_cost(readouts)
    if work.kind == "gram":
        late = contraction(short, long, work, readouts, rates)
        early = work.pairs(readouts) * price(long.pair, rates) + work.samples * price(long.sample, rates)
        return late < early + work.samples * rates.store * (long.floats - short.floats)
    if work.kind == "diagonal":
        return price(short.pair, rates) < price(long.sample + long.pair, rates) + rates.store * long.floats
    if work.kind == "sketch":
        return price(short.sketch, _SKETCHING) < price(long.sketch, _SKETCHING)
    return short.product <= long.product or short.floats * _FEWER < long.floats


def contraction(short: Cost, long: Cost, work: Work, readouts: int, rates: Rates) -> float:
    """Return the operations of contracting a compact form, by itself or written out late, whichever is cheaper."""
    late = work.samples * price(short.expand, rates) + work.pairs(readouts) * price(long.pair, rates)
    return min(by_pairs(short, work, readouts, rates), late)


def by_pairs(short: Cost, work: Work, readouts: int, rates: Rates) -> float:
    """Return the operations of contracting a compact form by itself."""
    return work.pairs(readouts, short.rows) * price(short.pair, rates)


def written_out(size: int, positions: int, readouts: int) -> Cost:
    """Return the cost of gradients of ``size`` entries written out, each a sum over some positions."""
    floats = readouts * size
    making = 2.0 * floats * positions
    return Cost(2 * readouts * floats, making, floats, 2 * floats, making + (STORE + SKETCH) * floats)


def outer_products(
    positions: int,
    inputs: int,
    outputs: int,
    readouts: int,
    k: int,
    floats: float | None = None,
    gram: Operations | float = 0,
) -> Cost:
    """Return the cost of gradients sum_t g_t a_t^T kept as inputs a and output gradients g.

    Args:
        positions: T.
        inputs: Length of a_t.
        outputs: Length of g_t.
        readouts: R.
        k: Length of a sketch.
        floats: Numbers kept per sample, if the inputs are not kept as they are.
        gram: Operations of the inputs' inner products per pair of samples; 0 for those of their definition.
    """
    squared, rows = positions * positions, 1
    unfolding: Operations | float
    if floats is None:
        floats = positions * (inputs + readouts * outputs)
        unfolding, rows = 0.0, positions
    else:
        unfolding = STORE * inputs
    transforms = (1 + readouts) * (FFT * math.log2(max(2, k)) + STORE) * k
    placing = unfolding + SKETCH * inputs + SCATTER * readouts * outputs
    return Cost(
        pair=(gram or squared * 2.0 * inputs) + squared * readouts**2 * (2 * outputs + ENTRYWISE),
        sample=0,
        floats=floats,
        product=2.0 * positions * outputs * (inputs + readouts),
        sketch=positions * (transforms + placing) + STORE * floats,
        expand=readouts * inputs * outputs * (2.0 * positions + ENTRYWISE) if positions > 1 else math.inf,
        rows=rows,
    )


def expanding_is_cheaper(factor: "Factor", others: int, symmetric: bool, rates: Rates = DEFAULT) -> bool:
    """Return whether writing gradients out is cheaper than contracting their compact form with other samples."""
    whole, paired = (
        computed_pairs(factor.count, others, factor.readouts, symmetric, rows) for rows in (1, factor.product_rows)
    )
    entries = 2.0 * factor.readouts**2 * factor.row_count * factor.row_size
    samples = factor.count + (0 if symmetric else others)
    late = samples * price(factor.expand_operations, rates) + whole * entries
    return late < paired * price(factor.pair_operations, rates)
