"""One page for everything that was run: claims at a glance, figures, numbers, provenance.

    >>> from tangentlab import report
    >>> report.build("runs", "report.html")

The page is one file and asks for nothing outside it: data, charts and their libraries are inside.
"""

from tangentlab.report._build import build

__all__ = ["build"]
