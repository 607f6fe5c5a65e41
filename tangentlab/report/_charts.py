"""The libraries that draw charts, and how charts look."""

from functools import cache
from typing import Any

from tangentlab._errors import TangentError
from tangentlab.experiments.internal import VEGA_LITE, config

# The bundle is a module: what a page's own code needs of it is made global.
_EXPOSE = "window.vegaEmbed = vegaEmbed;"


@cache
def bundle() -> str:
    """Return the libraries that draw the charts, which are the same on every page.

    Raises:
        TangentError: They are not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise TangentError(
            "The page needs vl-convert-python, which is not installed.", remedy="Run `pip install vl-convert-python`."
        ) from error
    return str(vl_convert.javascript_bundle(snippet=_EXPOSE, vl_version=VEGA_LITE))


def themes() -> dict[str, Any]:
    """Return the appearance of charts on a light and on a dark page, which show through them."""
    return {"light": config() | {"background": "transparent"}, "dark": config(dark=True)}
