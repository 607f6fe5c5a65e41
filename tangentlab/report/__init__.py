"""Pages: of the results of experiments (claims, figures, numbers, provenance), and of an attribution.

    >>> from tangentlab import report
    >>> report.build("runs", "report.html")
    >>> report.attribution(result, train, test, "attribution.html")

A page is one file that loads nothing else: it contains data, pictures, charts and their libraries.
"""

from tangentlab.report._attribution import attribution
from tangentlab.report._build import build

__all__ = ["attribution", "build"]
