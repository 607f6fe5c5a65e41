"""The files of a store, written completely or not at all, and the refusals when the disk fails."""

import asyncio
import errno
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from zarr.core.buffer import Buffer
from zarr.storage import LocalStore

from tangentlab._errors import TangentError
from tangentlab._files import is_dead, written_whole

PRIVATE = ".tangentlab"
"""The folder inside a store for everything but the kernel: unfinished files, leases, spilled factors."""
_FORGOTTEN = 24 * 3600.0


def sweep(folder: Path) -> None:
    """Remove unfinished files of processes that ended on this machine, or that are a day old."""
    for path in folder.glob("*.partial"):
        with suppress(OSError):
            if is_dead(path.name) or time.time() - path.stat().st_mtime > _FORGOTTEN:
                path.unlink()


class AtomicStore(LocalStore):
    """Zarr's folder on disk, with files that appear complete or not at all and survive a power failure.

    Zarr's own writes are atomic since version 3.1, but are not flushed to the disk: after a power failure, a chunk
    might exist without its content.
    """

    async def set(self, key: str, value: Buffer) -> None:
        await asyncio.to_thread(self.set_sync, key, value)

    def set_sync(self, key: str, value: Buffer) -> None:
        self.write(key, value.as_numpy_array().data)

    def write(self, key: str | Path, *parts: bytes | memoryview) -> None:
        """Write a file from its parts."""
        self._check_writable()
        with written_whole(self.root / key, self.root / PRIVATE / "unfinished") as file:
            for part in parts:
                file.write(part)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn system errors about a full disk or missing permissions into refusals."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        if full:
            with suppress(OSError):
                free = shutil.disk_usage(path).free
                raise TangentError(
                    f"The disk of {path} is full ({free / 1024**2:.0f} MiB free).",
                    "The tile that was being written is missing; all tiles before it are complete.",
                    "Make room, then rerun to resume.",
                ) from error
        if full or error.errno in (
            errno.EACCES,
            errno.ENOENT,
            errno.EPERM,
            errno.EROFS,
            errno.ENOTDIR,
            errno.EIO,
            errno.ENAMETOOLONG,
            errno.EEXIST,
            errno.EBUSY,
            errno.ELOOP,
        ):
            raise TangentError(
                f"{error.filename or path} cannot be written: {error.strerror}.",
                "Finished tiles are complete.",
                "Choose a folder that you may write to, or make room; then rerun to resume.",
            ) from error
        raise
