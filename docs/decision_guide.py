"""The picture of the page ``choose.md``, drawn from the page's own tables, so that both say the same."""

import html
import re
import textwrap

MARK = "<!-- decision guide -->"
_TABLE = re.compile(r"^## (?P<title>[^\n]+)\n\n\|[^\n]+\n\|[-|]+\n(?P<rows>(?:\|[^\n]+\n)+)", re.M)
_LINK = re.compile(r"\[(?P<text>.+?)\]\((?P<page>[\w/-]+)\.md(?P<anchor>#[\w-]+)?\)")
_WIDTH, _ROW, _TOP, _CHOICE = 440, 46, 44, 200


def with_picture(markdown: str) -> str:
    """Return the page with the picture in place of its mark: one panel per table."""
    panels = "\n".join(_panel(number, match) for number, match in enumerate(_TABLE.finditer(markdown)))
    return markdown.replace(MARK, f'<div class="guide">\n{panels}\n</div>')


def _panel(number: int, match: re.Match[str]) -> str:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in match["rows"].splitlines()]
    height = _TOP + _ROW * len(rows) + 6
    title = html.escape(match["title"].partition(":")[0])
    said = "; ".join(f"{row[0]}: {_plain(row[1])}" for row in rows)
    return "\n".join(
        [
            f'<svg viewBox="0 0 {_WIDTH} {height}" role="group" aria-labelledby="guide-{number}">',
            f'<title id="guide-{number}">{title}. {html.escape(said, quote=False)}</title>',
            f'<text class="question" x="4" y="22">{title}?</text>',
            f'<path class="trunk" d="M10 32 V{_TOP + _ROW * (len(rows) - 1) + 20}"/>',
            *(_branch(index, row[0], row[1]) for index, row in enumerate(rows)),
            "</svg>",
        ]
    )


def _branch(index: int, condition: str, choice: str) -> str:
    """Return one row: a condition, an arrow, and the box that links to the page of the choice."""
    y = _TOP + _ROW * index + 20
    link = _LINK.search(choice)
    if link is None:
        raise ValueError(f"The choice {choice!r} has no link to a page.")
    left = _WIDTH - _CHOICE - 4
    lines = textwrap.wrap(condition, 26)
    first = y + 5 - 8 * (len(lines) - 1)
    spans = "".join(f'<tspan x="30" y="{first + 16 * i}">{html.escape(line)}</tspan>' for i, line in enumerate(lines))
    return (
        f'<path class="trunk" d="M10 {y} H24"/><text class="condition">{spans}</text>'
        f'<path class="arrow" d="M{left - 18} {y} H{left - 4} m-6 -4 l6 4 l-6 4"/>'
        f'<a href="../{link["page"]}/{link["anchor"] or ""}"><rect class="choice" x="{left}" y="{y - 17}" '
        f'width="{_CHOICE}" height="34" rx="6"/>'
        f'<text class="name" x="{left + _CHOICE / 2}" y="{y + 5}">{html.escape(_plain(link[0]))}</text></a>'
    )


def _plain(cell: str) -> str:
    """Return the text of a link without code marks."""
    return _LINK.sub(lambda link: link["text"], cell).replace("`", "")
