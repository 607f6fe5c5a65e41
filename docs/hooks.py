"""What mkdocs needs besides its plugins: mathematics as MathML, and the explorer of the digits."""

import re
import xml.etree.ElementTree as etree
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from mkdocs.structure.files import File


def on_config(config: Any) -> Any:
    """Add ``$...$`` and ``math`` fences to the Markdown of pages and docstrings."""
    config.markdown_extensions.append(InlineMath())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": _display}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the explorer of the digits, a page of its own, which takes some seconds to compute."""
    from tangentlab.demo import explore_digits

    files.append(File.generated(config, "explorer/digits.html", content=explore_digits().html(docs="..")))
    return files


def _display(source: str, *_: Any, **__: Any) -> str:
    return f'<div class="math">{convert(source.strip(), display="block")}</div>'


class InlineMath(Extension):
    """``$...$`` within a line."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(_Inline(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\w)", md), "inline-math", 185)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element | str, int, int]:
        return self.md.htmlStash.store(convert(m.group(1))), m.start(0), m.end(0)
