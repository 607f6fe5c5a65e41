"""The page of troubleshooting, made from the entries and from every refusal in the code when the site is built.

python -m docs.troubleshooting          # print the page
python -m docs.troubleshooting --list   # print topics, modules and messages, for sorting new ones
"""

import ast
import html
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tangentlab._help import entry, topic_of, topics

PACKAGE = Path(__file__).resolve().parent.parent / "tangentlab"
CLASSES = {"TangentError", "DivergenceError", "DownloadFailure"}
_INTRODUCTION = """# Troubleshooting

tangentlab refuses input that would give a wrong number or none. A message states what is wrong, why, and the remedy.
Its last line names an entry of this page, which `tangentlab help` prints without a network connection:

```bash
tangentlab help
tangentlab help batch-statistics
```

In Python the message is a `tangentlab.TangentError` with the attributes `what`, `why`, `remedy` and `topic`. Each entry
ends with all messages that lead to it; a word in *italics* stands for a value. To find a message with the search box,
put some of its words in quotation marks: `"drops units at random"`.
"""


@dataclass(frozen=True)
class Refusal:
    """A message as it is written in the code; values that are put into it are named in braces.

    Attributes:
        module: Where it is raised.
        line: The line.
        what: The parts of the message; each may have alternatives, which are joined by " / ".
        why: See what.
        remedy: See what.
    """

    module: str
    line: int
    what: str
    why: str
    remedy: str

    @property
    def topic(self) -> str | None:
        """The entry that it leads to."""
        return topic_of(self.what, self.module)


def refusals() -> Iterator[Refusal]:
    """Yield every refusal that is written in the package; not those that only pass on another one's parts."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("tangentlab", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLASSES:
                if node.args and isinstance(node.args[0], ast.Starred):
                    continue
                given = dict(zip(("what", "why", "remedy"), map(_text, node.args), strict=False))
                given |= {
                    word.arg: _text(word.value) for word in node.keywords if word.arg in ("what", "why", "remedy")
                }
                yield Refusal(module, node.lineno, given.get("what", ""), given.get("why", ""), given.get("remedy", ""))


def _text(part: ast.expr) -> str:
    """Return a string expression as text; what is computed is shown by its name in braces."""
    if isinstance(part, ast.Constant):
        return str(part.value)
    if isinstance(part, ast.JoinedStr):
        return "".join(map(_text, part.values))
    if isinstance(part, ast.FormattedValue):
        return _text(part.value)
    if isinstance(part, ast.IfExp):
        return " / ".join(text for text in (_text(part.body), _text(part.orelse)) if text)
    if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
        return _text(part.left) + _text(part.right)
    if isinstance(part, ast.Name):
        return f"{{{part.id.strip('_')}}}"
    if isinstance(part, ast.Attribute):
        return f"{{{part.attr.strip('_')}}}"
    return "{…}"


def page() -> str:
    """Return the page in Markdown."""
    by_topic: dict[str, list[Refusal]] = {}
    for refusal in refusals():
        by_topic.setdefault(refusal.topic or "", []).append(refusal)
    return "\n".join([_INTRODUCTION, *(_section(topic, by_topic.get(topic, [])) for topic in topics())])


def _section(topic: str, found: list[Refusal]) -> str:
    first, _, rest = entry(topic).partition("\n")
    messages = "\n".join(map(_message, sorted(found, key=lambda refusal: refusal.what)))
    count = f"{len(found)} message{'' if len(found) == 1 else 's'}"
    shown = f'<details class="messages"><summary>{count}</summary>\n<dl>\n{messages}\n</dl>\n</details>\n'
    return f"#{first} {{#{topic}}}\n{rest}\n`tangentlab help {topic}`\n\n{shown}"


def _message(refusal: Refusal) -> str:
    parts = [f"<dt>{_values(refusal.what)}</dt>"]
    parts += [f"<dd>Why: {_values(refusal.why)}</dd>"] if refusal.why else []
    parts += [f"<dd>Remedy: {_values(refusal.remedy)}</dd>"] if refusal.remedy else []
    return "".join(parts)


def _values(text: str) -> str:
    escaped = html.escape(" ".join(text.split()), quote=False)
    return escaped.replace("{", "<em>").replace("}", "</em>")


def main() -> None:
    """Print the page, or the list of messages."""
    if "--list" not in sys.argv:
        print(page())
        return
    for refusal in sorted(refusals(), key=lambda refusal: (refusal.topic or "", refusal.module, refusal.line)):
        print(f"{refusal.topic}\t{refusal.module.removeprefix('tangentlab.')}:{refusal.line}\t{refusal.what[:110]}")


if __name__ == "__main__":
    main()
