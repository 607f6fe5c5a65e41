"""Files that are written whole or not at all."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tangentlab._errors import TangentError


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """The folder, made if need be and tried out.

    Raises:
        TangentError: If nothing can be written there.
    """
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise TangentError(
            f"{path} cannot be written to: {error.strerror}.", "the results go there.", "choose another --out."
        ) from error
    return path


def write_bytes(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Writes a file under a temporary name, flushes it to the disk and renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise TangentError(
            f"{path} could not be written: {error.strerror}.", remedy="Free some space, or choose another --out."
        ) from error


def write_text(path: Path, text: str) -> None:
    """The same for text."""
    write_bytes(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """The same for plain values."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")
