"""Files that are written completely or not at all."""

import json
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tangentlab._errors import TangentError


def user_cache() -> Path:
    """Return the platform's folder for what can be made again (on Linux below ``XDG_CACHE_HOME``)."""
    import pooch

    return Path(pooch.os_cache("tangentlab"))


def process_name() -> str:
    """Make a name for this process by which others can tell whether it is still alive."""
    return f"{socket.gethostname()}~{os.getpid()}~{uuid.uuid4().hex[:12]}"


def is_dead(name: str) -> bool:
    """Return whether the process of a :func:`process_name` has certainly ended: it ran here and no longer exists."""
    host, _, rest = name.partition("~")
    number = rest.partition("~")[0]
    if host != socket.gethostname() or not number.isdecimal():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


@contextmanager
def written_whole(path: Path, folder: Path | None = None, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a file for writing that appears under its name only when it is complete, replacing an existing one.

    Args:
        path: The file.
        folder: The folder of the unfinished file, on the same file system; None for that of ``path``.
        durable: Whether the complete file must survive a power failure.
    """
    folder = path.parent if folder is None else folder
    for needed in (folder, path.parent):
        needed.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{process_name()}.partial"
    try:
        with open(temporary, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder, so that a renaming survives a power failure where the system allows it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def make_folder(folder: str | os.PathLike[str]) -> Path:
    """Create a folder if needed, and check that it can be written to.

    Raises:
        TangentError: Nothing can be written there.
    """
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / f".writable.{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise TangentError(
            f"{path} cannot be written to: {error.strerror}.", "The results are written there.", "Choose another --out."
        ) from error
    return path


def write_bytes(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under another name, flush it to the disk and rename it.

    Raises:
        TangentError: The disk is full or cannot be written to; an existing file of that name is unchanged.
    """
    try:
        with written_whole(path) as file:
            write(file)
    except OSError as error:
        raise TangentError(
            f"{path} could not be written: {error.strerror}.", remedy="Free some space, or choose another place."
        ) from error


def write_text(path: Path, text: str) -> None:
    """Write text in the same way."""
    write_bytes(path, lambda file: file.write(text.encode()))


def write_json(path: Path, value: Any) -> None:
    """Write plain values as JSON in the same way."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")
