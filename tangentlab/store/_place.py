"""Where a store is: files with names, which appear complete or not at all, in a folder or in an object store."""

import errno
import hashlib
import os
import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from zarr.abc.store import Store

from tangentlab._errors import TangentError
from tangentlab._files import process_name, sync_folder, written_whole
from tangentlab.store._files import PRIVATE, AtomicStore, disk_errors, sweep
from tangentlab.store._leases import FOLDER, Leases
from tangentlab.store._rates import DiskRates, free_disk, measure_disk

PathLike = str | os.PathLike[str]
Write = Callable[[IO[bytes]], Any]
METADATA = "zarr.json"
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
UNLIMITED = 2**62
"""Free bytes of an object store."""


class Entry(NamedTuple):
    """A file of a store: its size in bytes, when it was written by the place's own clock, and its version.

    The version differs after every change of the file.
    """

    size: int
    time: float
    version: Hashable


class Place(ABC):
    """The files of a store. Names are relative to it, with slashes.

    Attributes:
        where: The folder, or the address of the object store.
    """

    where: Path | str

    def __str__(self) -> str:
        return str(self.where)

    @abstractmethod
    def array_store(self, writable: bool) -> Store:
        """Return the place as Zarr sees it."""

    @abstractmethod
    def found(self, files: Mapping[str, Write]) -> bool:
        """Create a store from its files, among them its metadata; return False if there is one already.

        Raises:
            TangentError: Something else is there.
        """

    @abstractmethod
    def stat(self, name: str) -> Entry | None:
        """Look a file up; None if there is none."""

    @abstractmethod
    def names(self, folder: str) -> Iterator[str]:
        """List the files below a folder of the store."""

    @abstractmethod
    def entries(self, folder: str) -> Iterator[tuple[str, Entry]]:
        """List the files below a folder of the store, with their sizes and times."""

    @abstractmethod
    def read(self, name: str) -> Any:
        """Read a file as a buffer of bytes.

        Raises:
            FileNotFoundError: There is none.
        """

    @abstractmethod
    def write(self, name: str, *parts: bytes | memoryview) -> None:
        """Write a file from its parts, replacing an existing one."""

    def upload(self, name: str, write: Write) -> None:
        """Write a file that may be large."""
        with tempfile.TemporaryFile() as file:
            write(file)
            file.seek(0)
            self.write(name, file.read())

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if there is one."""

    @abstractmethod
    def clear(self, folder: str) -> None:
        """Remove all files below a folder of the store."""

    @abstractmethod
    def leases(self) -> Leases:
        """Return the leases of the processes that share the store."""

    @abstractmethod
    def scratch(self) -> Path:
        """Return the folder on a disk where factors are spilled unless the user chose one."""

    @abstractmethod
    def errors(self) -> AbstractContextManager[None]:
        """Turn errors of the system into refusals."""

    @abstractmethod
    def rates(self) -> tuple[DiskRates, int]:
        """Measure the rates of writing and reading, and the free bytes."""

    def weights_name(self, key: str) -> str:
        """Return the file of the weights that a store with this key keeps."""
        return "weights.pt"

    def require(self) -> None:  # noqa: B027
        """Refuse if a store could not be here: looking up a file in a bucket that does not exist finds nothing."""

    def sweep(self) -> None:  # noqa: B027
        """Remove what processes that ended have left unfinished; nothing in an object store, whose writes are whole."""


class Folder(Place):
    """A store in a folder of a file system."""

    def __init__(self, path: Path) -> None:
        self.where: Path = path

    def array_store(self, writable: bool) -> AtomicStore:
        return AtomicStore(self.where, read_only=not writable)

    def found(self, files: Mapping[str, Write]) -> bool:
        path = self._resolved()  # a folder can be moved to where a link points, not onto the link
        path.parent.mkdir(parents=True, exist_ok=True)
        if (path / METADATA).exists():
            return False
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise occupied(self)
        draft = path.parent / f".{path.name}.{process_name()}.draft"
        try:
            for name, write in files.items():
                with written_whole(draft / name) as file:
                    write(file)
            os.rename(draft, path)  # fails if the folder exists and is not empty
        except OSError:
            if not (path / METADATA).exists():
                raise
            return False
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_folder(path.parent)
        return True

    def _resolved(self) -> Path:
        try:
            return self.where.resolve()
        except RuntimeError as error:  # Python's error for links that point at each other
            what = f"{self.where} is a link that leads nowhere."
            raise TangentError(what, f"{error}.", "Choose another folder.") from error

    def stat(self, name: str) -> Entry | None:
        try:
            state = (self.where / name).stat()
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise
        return Entry(state.st_size, state.st_mtime, (state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size))

    def names(self, folder: str) -> Iterator[str]:
        top = self.where / folder
        for entry in os.scandir(top) if top.is_dir() else ():
            if entry.is_dir():
                yield from self.names(f"{folder}/{entry.name}")
            else:
                yield f"{folder}/{entry.name}"

    def entries(self, folder: str) -> Iterator[tuple[str, Entry]]:
        for name in self.names(folder):
            if (entry := self.stat(name)) is not None:
                yield name, entry

    def read(self, name: str) -> bytes:
        return (self.where / name).read_bytes()

    def write(self, name: str, *parts: bytes | memoryview) -> None:
        with written_whole(self.where / name, self.where / PRIVATE / "unfinished") as file:
            for part in parts:
                file.write(part)

    def remove(self, name: str) -> None:
        (self.where / name).unlink(missing_ok=True)

    def clear(self, folder: str) -> None:
        shutil.rmtree(self.where / folder, ignore_errors=True)

    def leases(self) -> Leases:
        return Leases(self.where / PRIVATE / FOLDER)

    def scratch(self) -> Path:
        return self.where / PRIVATE

    def errors(self) -> AbstractContextManager[None]:
        return disk_errors(self.where)

    def rates(self) -> tuple[DiskRates, int]:
        return measure_disk(self.where), free_disk(self.where)

    def sweep(self) -> None:
        sweep(self.where / PRIVATE / "unfinished")


def local_scratch(address: str) -> Path:
    """Return a folder of this machine for the factors of a store that is elsewhere."""
    return Path(tempfile.gettempdir()) / f"tangentlab-{hashlib.sha256(address.encode()).hexdigest()[:16]}"


def as_place(path: PathLike | Place) -> Place:
    """Convert what a user passes to a place: a folder, or the address of an object store ("s3://bucket/kernel.zarr")."""
    if isinstance(path, Place):
        return path
    if isinstance(path, str) and "://" in path:
        from tangentlab.store._bucket import Bucket

        return Bucket(path)
    folder = Path(path)
    if re.match(r"(s3|gs|az|memory):$", folder.parts[0] if folder.parts else ""):
        raise TangentError(
            f"{folder} is an address as a path.", "A path has lost one of its slashes.", "Pass the address as text."
        )
    return Folder(folder)


def occupied(place: Place) -> TangentError:
    """Return the refusal to create a store where something else is."""
    return TangentError(
        f"{place} exists and is not a stored kernel.",
        "Existing files are never overwritten.",
        "Choose another folder.",
    )


def remove_quietly(place: Place, name: str) -> None:
    """Remove a file of a store that is not needed any longer, if that is possible."""
    with suppress(OSError, TangentError):
        place.remove(name)
