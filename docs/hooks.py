"""What mkdocs needs besides its plugins: mathematics as MathML, and pages that are made when the site is built."""

import re
import sys
import xml.etree.ElementTree as etree
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from mkdocs.structure.files import File

sys.path.insert(
    0, str(Path(__file__).resolve().parent.parent)
)  # mkdocs alone does not look for docs and tangentlab here
BENCHMARKS = "<!-- times of benchmarks.md -->"


def on_config(config: Any) -> Any:
    """Add ``$...$`` and ``math`` fences to the Markdown of pages and docstrings."""
    config.markdown_extensions.append(InlineMath())
    fences = config.mdx_configs.setdefault("pymdownx.superfences", {})
    fences["custom_fences"] = [{"name": "math", "class": "math", "format": _display}]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the explorer of the digits, a page of its own, which takes some seconds to compute, troubleshooting, and the
    notebooks."""
    from docs import build_notebooks
    from docs.troubleshooting import page
    from tangentlab.demo import explore_digits

    files.append(File.generated(config, "troubleshooting.md", content=page()))
    for notebook in build_notebooks.notebooks():
        text, pictures = build_notebooks.page(notebook)
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=text))
        for name, picture in pictures.items():
            files.append(File.generated(config, f"notebooks/{name}", content=picture))

    files.append(File.generated(config, "explorer/digits.html", content=explore_digits().html(docs="..")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Draw the decision guide, and copy the table of the benchmarks to where other tools are compared."""
    from docs.decision_guide import MARK, with_picture

    if MARK in markdown:
        return with_picture(markdown)
    return markdown.replace(BENCHMARKS, measured_times()) if BENCHMARKS in markdown else markdown


def measured_times() -> str:
    """Return the table of times of other tools as the page of benchmarks has it."""
    text = (Path(__file__).parent / "benchmarks.md").read_text()
    found = re.search(r"^\| exact kernel \|.*?(?=^$)", text, re.M | re.S)
    if found is None:
        raise ValueError("benchmarks.md has no table of exact kernels.")
    return found[0]


def _display(source: str, *_: Any, **__: Any) -> str:
    return f'<div class="math">{convert(source.strip(), display="block")}</div>'


class InlineMath(Extension):
    """``$...$`` within a line."""

    def extendMarkdown(self, md: Markdown) -> None:
        md.inlinePatterns.register(_Inline(r"(?<![\\$\w])\$(?!\s)([^$\n]+?)(?<!\s)\$(?!\w)", md), "inline-math", 185)


class _Inline(InlineProcessor):
    def handleMatch(self, m: re.Match[str], data: str) -> tuple[etree.Element | str, int, int]:
        return self.md.htmlStash.store(convert(m.group(1))), m.start(0), m.end(0)
