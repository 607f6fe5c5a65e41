"""The page of an attribution: the most helpful and the most harmful training samples of chosen test samples."""

import io
import os
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tangentlab._files import make_folder, write_text
from tangentlab._version import __version__
from tangentlab.attribution import Attribution, Top
from tangentlab.attribution.internal import as_texts, check_shown, class_name, image_of
from tangentlab.report._assets_of import asset, policy

_SIDE = 84
"""Pixels of an image on the page."""
_LETTERS = 400
"""Characters of a text that are shown."""


def attribution(
    result: Attribution,
    train: Any,
    test: Any,
    out: str | os.PathLike[str] = "attribution.html",
    *,
    tests: Sequence[int] | None = None,
    k: int = 8,
    names: Sequence[str] | None = None,
    title: str = "Which training samples made these predictions?",
) -> Path:
    """Write a page with the k most helpful and the k most harmful training samples of chosen test samples.

    Cost per test sample: two passes over its N scores, and 2 k + 1 samples in the file, images as PNG.

    Args:
        result: The scores.
        train: The training samples: images, a Dataset of images, or texts; anything else is shown by its number.
        test: The test samples in the same form.
        out: The file. It contains everything, runs no scripts and loads nothing.
        tests: Numbers of test samples; by default the first ten.
        k: How many training samples of each kind.
        names: Names of the classes.
        title: Title of the page.

    Returns:
        The file's path.

    Raises:
        TangentError: There is no such test sample, or the file cannot be written.
    """
    train, test = (as_texts(data) or data for data in (train, test))
    if not any(isinstance(data, Mapping | tuple) for data in (train, test)):  # several inputs per sample: by number
        check_shown(result, train, test)
    chosen = range(min(10, len(result.scores))) if tests is None else tests
    articles = "".join(_article(result, number, train, test, k, names) for number in chosen)
    count, samples = result.scores.shape
    options = ", ".join(f"{name} {value}" for name, value in result.method.items() if name != "name" and value)
    style = asset("page.css") + asset("attribution.css")
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy(style)}">
<title>{escape(title)} – tangentlab</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<header class="top"><div><p class="brand">tangentlab {escape(__version__)}</p><h1>{escape(title)}</h1>
<p class="lead">Method {escape(result.method["name"])}{f" ({escape(options)})" if options else ""}, checkpoints:
{result.checkpoints}, training samples: {samples:,}, test samples: {count:,}. A positive score means that the training
sample helps: it raises the test sample's margin or lowers its loss.</p></div></header>
<main id="main" class="attributions">{articles}</main>
</body>
</html>
"""
    path = Path(out).expanduser()
    make_folder(path.parent)
    write_text(path, page)
    return path


def _article(result: Attribution, number: int, train: Any, test: Any, k: int, names: Any) -> str:
    parts = [
        f"<h3>{heading}</h3><ul>{_items(result, result.top(number, k, harmful=harmful), train, names)}</ul>"
        for heading, harmful in (("Most helpful", False), ("Most harmful", True))
    ]
    label = class_name(result.test_targets, number, names)
    head = f"Test sample {number}" + (f": {escape(label)}" if label else "")
    return f'<article id="test-{number}"><h2>{head}</h2>{_shown(test, number)}{"".join(parts)}</article>'


def _items(result: Attribution, top: Top, train: Any, names: Any) -> str:
    items = []
    for index, score in zip(top.indices.tolist(), top.scores.tolist(), strict=True):
        label = escape(class_name(result.train_targets, index, names))
        caption = f'<b class="{"holds" if score > 0 else "fails"}">{score:+.3g}</b> {label} <small>no. {index}</small>'
        items.append(f"<li>{_shown(train, index)}<span>{caption}</span></li>")
    return "".join(items)


def _shown(data: Any, index: int) -> str:
    """Return a sample as HTML: a picture, a text, or nothing for what is neither."""
    if isinstance(data, list) and isinstance(data[0], str):
        text = " ".join(data[index].split())
        return f"<p>{escape(text[:_LETTERS])}{'…' if len(text) > _LETTERS else ''}</p>"
    try:
        pixels = (255 * image_of(data, index)).round().to("cpu").byte().numpy()
    except (ValueError, TypeError, KeyError, RuntimeError):
        return ""
    from PIL import Image

    image = Image.fromarray(255 - pixels if pixels.ndim == 2 else pixels)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    source = b64encode(buffer.getvalue()).decode()
    return f'<img alt="sample {index}" width="{_SIDE}" height="{_SIDE}" src="data:image/png;base64,{source}">'
