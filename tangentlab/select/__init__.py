"""Choose samples by their kernel: what to label next, which samples represent the pool, where to put inducing points.

The *pool* is a kernel source (see :mod:`tangentlab.linalg`): a matrix, a stored kernel, an operator, or features from
:func:`tangentlab.sketch` or :class:`tangentlab.linalg.LowRank`, which serve pools of a million samples. ``labeled``
are rows of the pool that are already there: the others are chosen in their presence.

>>> from tangentlab import select, sketch
>>> features = sketch(network, pool, 512)
>>> select.max_determinant(features, 100, labeled=known).indices      # 100 samples that differ most
>>> select.lcmd(features, 100, classes=network(pool).argmax(1))       # as many of each predicted class

| method | chooses | needs | per chosen sample |
|---|---|---|---|
| :func:`largest_variance` | the largest posterior variances | a kernel | nothing |
| :func:`max_determinant` | the most different samples | a kernel | n k, in blocks |
| :func:`lcmd` | samples that cover the pool | a kernel | one column of K |
| :func:`kmeans_plus_plus` | the same, at random | a kernel | one column of K |
| :func:`bait` | the smallest mean variance after labeling | features | 2 n k |
"""

from tangentlab.select._bait import bait
from tangentlab.select._determinant import max_determinant
from tangentlab.select._distances import kmeans_plus_plus, lcmd
from tangentlab.select._selection import Selection
from tangentlab.select._variance import largest_variance

__all__ = ["Selection", "bait", "kmeans_plus_plus", "largest_variance", "lcmd", "max_determinant"]
