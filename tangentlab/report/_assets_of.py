"""Files that pages contain, and the policy that allows a page these and nothing else."""

import hashlib
import re
from base64 import b64encode
from pathlib import Path

_ASSETS = Path(__file__).parent / "_assets"


def asset(name: str) -> str:
    """Return the text of a file."""
    return (_ASSETS / name).read_text()


def normalized(text: str) -> str:
    """Return style or code as an element can hold it, with line ends as a browser has them when it computes the hash.

    Only what would end or confuse a script is escaped: in code, a slash may begin a pattern.
    """
    text = re.sub(r"<(/script|!--)", r"\\x3c\1", text, flags=re.IGNORECASE)
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def policy(style: str, code: str | None = None) -> str:
    """Return the policy that allows the page's own style and code by their hashes, images inside the page, and nothing
    else.

    What would slip into the markup could not run, ask for anything, or send anything. Neither inline code nor eval is
    needed: Vega interprets its expressions (``ast``).

    Args:
        style: The text of the style element.
        code: That of the script element; None for a page without scripts.
    """
    scripts = "" if code is None else f"script-src {_source(code)}; "
    return (
        f"default-src 'none'; {scripts}style-src {_source(style)}; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _source(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
