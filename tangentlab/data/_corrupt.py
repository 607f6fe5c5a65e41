"""The error for a damaged file."""

from pathlib import Path

from tangentlab._errors import TangentError


def corrupt(path: Path | str, fact: str) -> TangentError:
    """Return an error that names the file, to be raised."""
    return TangentError(
        f"{path} {fact}.",
        why="The file is truncated, damaged, or not what its name says; nothing of it is used.",
        remedy="Delete it and copy or download it again.",
    )
