"""Troubleshooting: entries on what the library refuses, and which refusal belongs to which entry.

An entry is a Markdown file in ``_entries``. ``tangentlab help TOPIC`` prints it, and the site has all of them on one
page (``docs/troubleshooting.py``), each with the messages that lead to it.
"""

import re
from functools import lru_cache
from pathlib import Path

from tangentlab._topics import BY_MODULE, BY_WORDS

__all__ = ["entry", "title", "topic_of", "topics"]

_ENTRIES = Path(__file__).parent / "_entries"


def topics() -> list[str]:
    """Return the names of all topics, in alphabetical order."""
    return sorted(path.stem for path in _ENTRIES.glob("*.md"))


@lru_cache
def entry(topic: str) -> str:
    """Return the entry of a topic in Markdown; its first line is the title."""
    return (_ENTRIES / f"{topic}.md").read_text(encoding="utf-8")


def title(topic: str) -> str:
    """Return the title of a topic's entry."""
    return entry(topic).splitlines()[0].removeprefix("# ")


def topic_of(what: str, module: str) -> str | None:
    """Return the topic of a refusal: by its words, or else by the module that raised it.

    Args:
        what: The first part of the message.
        module: The full name of the module.

    Returns:
        The name of a topic, or None for a module that is not of this package.
    """
    if module.partition(".")[0] != "tangentlab":
        return None
    for topic, words in BY_WORDS:
        if re.search(words, what):
            return topic
    name = module.removeprefix("tangentlab.")
    while name:
        if name in BY_MODULE:
            return BY_MODULE[name]
        name = name.rpartition(".")[0]
    return None
