"""Every command in the documentation is one that the command line takes."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from docs.build_examples import DOCS, Page, commands, pages
from tangentlab.cli import app

ROOT = DOCS.parent
README = ROOT / "README.md"
# typer may bring its own copy of click.
Refused = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def blocks(text: str) -> list[str]:
    """Shell blocks; those without a language are commands too, as in the README."""
    fences = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```$", text, re.M | re.S)
    return [code for kind, code in fences if kind in ("bash", "console", "")]


def written(path: Path) -> list[str]:
    """The lines of shell blocks, comments taken off."""
    text = Page(path).source if path != README else path.read_text()
    lines = [line for block in blocks(text) for line in commands(block)]
    return [re.sub(r"\s+#.*", "", line) for line in lines]


def parse(arguments: list[str]) -> list[str]:
    """Parse as the command line does, without running anything; return the names of the commands.

    Raises:
        ClickException: It would be refused.
    """
    command, path, context = get_command(app), [], None
    name = "tangentlab"
    while True:
        try:
            context = command.make_context(name, list(arguments), parent=context)
        except typer.Exit:
            return path
        if not hasattr(command, "resolve_command"):
            return path
        rest = [*getattr(context, "_protected_args", []), *context.args]
        found, command, arguments = command.resolve_command(context, rest)
        name = found or ""
        path.append(name)


PATHS = [README, *(page.path for page in pages())]
LINES = [(path, line) for path in PATHS for line in written(path)]


def label(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value)[:60]


@pytest.mark.parametrize(("path", "line"), LINES, ids=label)
def test_line(path: Path, line: str) -> None:
    program, *arguments = shlex.split(line)
    if program == "srun":
        program, *arguments = arguments
    if program == "tangentlab":
        parse(arguments)
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text()
        assert all(re.search(rf"^{target}:", makefile, re.M) for target in arguments)
    elif program == "python":
        assert arguments[0] == "-m"
        assert importlib.util.find_spec(arguments[1]) is not None
    else:
        assert program in ("pip", "export"), f"{path.name}: nothing checks {line!r}"


@pytest.mark.parametrize("path", PATHS, ids=label)
def test_commands_in_sentences(path: Path) -> None:
    """``tangentlab x y`` within a line names commands that there are."""
    for inline in re.findall(r"`tangentlab ([a-z][^`]*)`", path.read_text()):
        names = [word for word in shlex.split(inline) if re.fullmatch(r"[a-z]+", word)]
        command = get_command(app)
        for name in names:
            if not hasattr(command, "commands"):
                break
            assert name in command.commands, f"{path.name}: tangentlab {inline}"
            command = command.commands[name]


def test_wrong_commands_are_noticed() -> None:
    with pytest.raises(Refused):
        parse(["kernel", "compute", "--modle", "lenet", "--out", "x"])
    with pytest.raises(Refused):
        parse(["kernle"])
    assert parse(["kernel", "compute", "--out", "x.zarr"]) == ["kernel", "compute"]


def test_every_command_is_listed() -> None:
    page = (DOCS / "commands.md").read_text()
    assert all(f"`tangentlab {name}`" in page for name in get_command(app).commands)
