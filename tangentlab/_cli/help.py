"""``tangentlab help``: what the library refuses, why, and what to do about it."""

import difflib
import re
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown

from tangentlab import _help
from tangentlab._cli._command import command
from tangentlab._errors import TangentError

app = typer.Typer()


@command(app)
def help(
    topic: Annotated[
        str, typer.Argument(metavar="[TOPIC]", help="Name of a topic, or a word of it.", show_default=False)
    ] = "",
) -> None:
    """Explain a refusal: what was refused, why, and what to do about it. Without a topic, list all topics.

    Example: tangentlab help nan
    """
    names = _help.topics()
    if not topic:
        width = max(map(len, names))
        lines = [f"{name:{width}}  {_help.title(name)}" for name in names]
        Console(highlight=False).print("\n".join(lines), markup=False, soft_wrap=True)
        return
    if topic not in names:
        near = difflib.get_close_matches(topic, names) or [
            name for name in names if re.search(rf"\b{re.escape(topic)}", _help.entry(name), re.IGNORECASE)
        ]
        if len(near) != 1:
            raise TangentError(
                f"There is no topic {topic!r}.",
                remedy=f"Run 'tangentlab help NAME' with one of {', '.join(near or names)}.",
            )
        topic = near[0]
    Console(highlight=False).print(Markdown(_offline(_help.entry(topic))))


def _offline(text: str) -> str:
    """Return an entry with the names of pages of the documentation in place of links."""
    return re.sub(r"\[([^\]]+)\]\(([\w/.-]+\.md)[^)]*\)", r"\1 (docs/\2)", text)
