"""One page for all results: an overview of claims, figures, numbers, provenance.

    >>> from tangentlab import report
    >>> report.build("runs", "report.html")

The page is one file that loads nothing else: it contains data, charts and their libraries.
"""

from tangentlab.report._build import build

__all__ = ["build"]
