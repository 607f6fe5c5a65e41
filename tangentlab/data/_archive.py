"""Unpacking of archives; nothing in them can be written outside the folder, or fill the disk."""

import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from tangentlab._errors import TangentError
from tangentlab._reading import RATIO, Unreadable, first_line, open_gzip, regular_size, unpacked_limit
from tangentlab.data._corrupt import corrupt

_MOST_MEMBERS = 1_000
_LONGEST_PART, _LONGEST_NAME = 200, 1_000
"""Bytes of a name between slashes, and of a whole name: less than any file system allows."""


def extract(archive: Path, destination: Path, most_bytes: int) -> Path:
    """Unpack a tar archive into ``destination``, which appears only when everything is unpacked.

    Every member is checked before any is written; only the bytes of regular files are taken, never owners,
    modes or links.

    Args:
        archive: The archive, compressed with gzip or not.
        destination: The folder to make; returned untouched if it exists.
        most_bytes: Refuse to unpack more than this, or than :data:`~tangentlab._reading.RATIO` times the
            archive's own size.

    Raises:
        TangentError: For a member with an absolute name, with ``..``, that is a link or device, or whose name
            conflicts with another's; for too much data; for a damaged archive; for a full disk.
    """
    if destination.is_dir():
        return destination
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".unpacking-") as temporary:
            work = Path(temporary) / "content"
            work.mkdir()
            _unpack(archive, work, most_bytes)
            try:
                os.replace(work, destination)
            except OSError:
                # Another process was faster; its folder is as good.
                if not destination.is_dir():
                    raise
    except OSError as error:
        raise TangentError(
            f"{archive} cannot be unpacked to {destination.parent}: {error.strerror or error}. Nothing was unpacked.",
            remedy="Free the disk or make the folder writable, or set XDG_CACHE_HOME to another place.",
        ) from error
    return destination


def _unpack(archive: Path, work: Path, most_bytes: int) -> None:
    try:
        bound = min(most_bytes, unpacked_limit(regular_size(archive)))
        # Headers and padding: at most three blocks of 512 bytes and a long name for a member, and the end.
        with open_gzip(archive, bound + 4096 * _MOST_MEMBERS) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            members = _members(archive, tar)
            if sum(member.size for member in members) > bound:
                many = f"{most_bytes:,} bytes" if bound == most_bytes else f"{RATIO} times its size"
                raise _hostile(archive, f"would unpack to more than {many}")
            _refuse_clashes(archive, members)
            for member in members:
                if member.isfile():
                    _write(tar, member, work / member.name)
            _read_to_the_end(file)
    except Unreadable as error:
        raise corrupt(archive, f"is not a whole archive: it {error}. Nothing was unpacked") from error
    except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
        if isinstance(error, TangentError):
            raise
        raise corrupt(archive, f"is not a whole archive: {first_line(error)}. Nothing was unpacked") from error


def _members(archive: Path, tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    members = []
    for member in tar:
        _check(archive, member)
        members.append(member)
        if len(members) > _MOST_MEMBERS:
            raise _hostile(archive, f"has more than {_MOST_MEMBERS:,} members")
    return members


def _check(archive: Path, member: tarfile.TarInfo) -> None:
    shown = repr(member.name[:80])
    if not (member.isfile() or member.isdir()) or member.issparse() or member.size < 0:
        raise _hostile(archive, f"holds {shown}, which is a link or a device, or no plain file")
    windows = PureWindowsPath(member.name)
    if PurePosixPath(member.name).is_absolute() or windows.drive or windows.root:
        raise _hostile(archive, f"holds {shown}, an absolute name")
    if ".." in windows.parts:  # Windows' rules split at both kinds of slashes
        raise _hostile(archive, f"holds {shown}, which leaves the folder")
    if not member.name.isprintable():  # control characters, and bytes that are not UTF-8
        raise _hostile(archive, f"holds {member.name[:80]!a}, a name with characters that cannot be shown")
    parts = PurePosixPath(member.name).parts
    if any(len(part.encode()) > _LONGEST_PART for part in parts) or len(member.name.encode()) > _LONGEST_NAME:
        raise _hostile(archive, f"holds {shown}..., a name too long for a file")
    if not parts and member.isfile():
        raise _hostile(archive, "holds a file without a name")


def _refuse_clashes(archive: Path, members: list[tarfile.TarInfo]) -> None:
    """Refuse an archive with two files of one name, or a file that is also a folder. Case does not distinguish
    names."""
    files: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    for member in members:
        parts = tuple(part.casefold() for part in PurePosixPath(member.name).parts)
        if member.isfile() and parts in files:
            raise _hostile(archive, f"holds two files named {member.name!r}")
        (files if member.isfile() else folders).add(parts)
        folders.update(parts[:i] for i in range(1, len(parts)))
    if both := files & folders:
        raise _hostile(archive, f"holds {'/'.join(min(both))!r} as a file and as a folder")


def _hostile(archive: Path, fact: str) -> TangentError:
    return TangentError(
        f"{archive} {fact}. Nothing was unpacked.",
        why="Such an archive could overwrite files elsewhere, or fill the disk.",
        remedy="Do not use it. Download the archive from its publisher.",
    )


def _read_to_the_end(file: IO[bytes]) -> None:
    """Read the archive to its end: tarfile stops at the last member, and the checksum of the compression comes after
    it."""
    while file.read(2**20):
        pass


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is None:  # cannot be: only regular files come here
        raise tarfile.ReadError(member.name)
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
    if path.stat().st_size != member.size:
        raise tarfile.ReadError(f"{member.name!r} is cut short")
