"""The libraries that draw charts, and how charts look."""

from functools import cache
from typing import Any

from tangentlab._extras import require
from tangentlab.experiments.internal import VEGA_LITE, config

# The bundle is a module: what a page's own code needs of it is made global.
_EXPOSE = "window.vegaEmbed = vegaEmbed;"


@cache
def bundle() -> str:
    """Return the libraries that draw the charts, which are the same on every page.

    Raises:
        TangentError: They are not installed.
    """
    vl_convert = require("vl_convert", "The package vl-convert-python", "report", "It has the charts of the page.")
    return str(vl_convert.javascript_bundle(snippet=_EXPOSE, vl_version=VEGA_LITE))


def themes() -> dict[str, Any]:
    """Return the appearance of charts on a light and on a dark page, which show through them."""
    return {"light": config() | {"background": "transparent"}, "dark": config(dark=True)}
