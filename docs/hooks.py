"""What mkdocs needs besides its plugins: mathematics as MathML, which browsers draw without any script."""

import re
import xml.etree.ElementTree as etree
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor


def on_config(config: Any) -> Any:
    """Add ``$...$`` and ``math`` fences to the Markdown of pages and docstrings."""
    config.markdown_extensions.append(InlineMath())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": _display}]
    return config


def _display(source: str, *_: Any, **__: Any) -> str:
    return f'<div class="math">{convert(source.strip(), display="block")}</div>'


class InlineMath(Extension):
    """``$...$`` within a line."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(_Inline(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\w)", md), "inline-math", 185)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element | str, int, int]:
        return self.md.htmlStash.store(convert(m.group(1))), m.start(0), m.end(0)
