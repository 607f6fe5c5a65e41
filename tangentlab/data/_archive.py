"""Unpacking an archive so that nothing in it can reach outside its folder."""

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from tangentlab._errors import TangentError
from tangentlab.data._corrupt import corrupt


def extract(archive: Path, destination: Path, most_bytes: int) -> Path:
    """Unpacks a tar archive into ``destination``, which appears only when everything is unpacked.

    Every member is checked before any is written; only the bytes of regular files are taken, never owners,
    modes or links.

    Args:
        archive: The archive, compressed or not.
        destination: The folder to make; returned untouched if it exists.
        most_bytes: Refuse to unpack more than this.

    Raises:
        TangentError: For a member with an absolute name, with ``..``, or that is a link or device; for
            too much data; for a damaged archive.
    """
    if destination.is_dir():
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".unpacking-") as temporary:
        work = Path(temporary) / "content"
        work.mkdir()
        try:
            with tarfile.open(archive) as tar:
                members = tar.getmembers()
                for member in members:
                    _check(archive, member)
                if sum(member.size for member in members) > most_bytes:
                    raise _hostile(archive, f"would unpack to more than {most_bytes:,} bytes")
                for member in members:
                    if member.isfile():
                        _write(tar, member, work / member.name)
                _read_to_the_end(tar)
        except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise corrupt(archive, f"is not a whole archive: {error}") from error
        try:
            os.replace(work, destination)
        except OSError:
            # Another process was faster; its folder is as good.
            if not destination.is_dir():
                raise
    return destination


def _check(archive: Path, member: tarfile.TarInfo) -> None:
    if not (member.isfile() or member.isdir()):
        raise _hostile(archive, f"holds {member.name!r}, which is a link or a device")
    windows = PureWindowsPath(member.name)
    if PurePosixPath(member.name).is_absolute() or windows.drive or windows.root:
        raise _hostile(archive, f"holds {member.name!r}, an absolute name")
    if ".." in windows.parts:  # Windows' rules split at both kinds of slashes
        raise _hostile(archive, f"holds {member.name!r}, which leaves the folder")


def _hostile(archive: Path, fact: str) -> TangentError:
    return TangentError(
        f"{archive} {fact}. Nothing was unpacked.",
        why="Such an archive could overwrite files elsewhere.",
        remedy="Do not use it. Download the archive from its publisher.",
    )


def _read_to_the_end(tar: tarfile.TarFile) -> None:
    """tarfile stops at the last member; the checksum of a compressed archive comes after it."""
    while tar.fileobj is not None and tar.fileobj.read(2**20):
        pass


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is None:  # cannot be: only regular files come here
        raise tarfile.ReadError(member.name)
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
