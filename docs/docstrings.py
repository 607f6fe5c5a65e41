"""Docstrings as mkdocs wants them: references and formulas of the code in Markdown."""

import re
import textwrap
from typing import Any

import griffe

_BLOCK = re.compile(
    r"^(?P<indent>[ ]*)\.\. math::[ ]*(?P<first>[^\n]*)\n(?P<rest>(?:(?P=indent)[ ]+\S[^\n]*\n?)*)", re.M
)
_INLINE = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data|exc):`(?P<short>~?)(?P<name>[\w.]+)`")


class Roles(griffe.Extension):
    """A preprocessor that turns ``:func:`` and ``math`` of docstrings into links, where there is a target, and
    MathML."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """Convert a docstring's roles and formulas to Markdown."""
    text = _BLOCK.sub(_fence, text + "\n")
    text = _INLINE.sub(r"$\1$", text)
    return _ROLE.sub(_link, text).rstrip("\n")


def _fence(match: re.Match[str]) -> str:
    body = textwrap.dedent(match["rest"])
    lines = [line for line in [match["first"], *body.splitlines()] if line.strip()]
    return textwrap.indent("```math\n" + "\n".join(lines) + "\n```\n", match["indent"])


def _link(match: re.Match[str]) -> str:
    name = match["name"]
    shown = name.rpartition(".")[2] if match["short"] else name
    return f'<autoref optional identifier="{name}"><code>{shown}</code></autoref>'
