"""Reading untrusted files: limits on their size, and refusals before anything is read.

Every reader of the package uses this module for three checks. A file must be regular: reading a pipe would block. Its
size is limited before it is read. Compressed data may unpack to a limited multiple of its size, both by what it
declares *and* by what it really contains: deflate can compress a thousand bytes to one, so that 300 kB become 300 MiB.
"""

import gzip
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

RATIO = 100
"""Compressed data may unpack to this many times its size. Images and text reach 3 to 20."""
FLOOR = 64 * 2**20
"""Bytes that compressed data may always unpack to: small files of zeros are harmless."""
JSON_BYTES = 64 * 2**20
"""The largest size of a JSON file."""
JSON_DEPTH = 64
"""The deepest nesting of lists and objects in JSON."""
_CHUNK = 2**20
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[\]{}]', re.S)  # strings, and the brackets outside them


class Unreadable(ValueError):
    """The reason why a file is not read, as the end of a sentence that begins with its name."""


def unpacked_limit(size: int) -> int:
    """Return the bytes that ``size`` compressed bytes may unpack to."""
    return max(FLOOR, RATIO * size)


def regular_size(path: Path) -> int:
    """Return the size of a regular file in bytes.

    Raises:
        Unreadable: It is a folder, a pipe or a device, or does not exist.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise Unreadable(f"cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable("cannot be read: it is not a regular file")
    return status.st_size


def read_bytes(path: Path, most: int) -> bytes:
    """Read the whole file.

    Raises:
        Unreadable: It is not a regular file, or has more than ``most`` bytes.
    """
    size = regular_size(path)
    if size > most:
        raise Unreadable(f"cannot be read: it has {size:,} bytes, and at most {most:,} are expected")
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if len(content) > most:  # it grew in between
        raise Unreadable(f"cannot be read: it has more than {most:,} bytes")
    return content


def read_json(path: Path, most: int = JSON_BYTES) -> Any:
    """Read plain values from JSON: no NaN, no repeated key, limited nesting, text that can be written.

    Raises:
        Unreadable: It is anything else.
    """
    content = read_bytes(path, most)
    try:
        text = content.decode()
        _refuse_deep(text)
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode()  # an escaped half of a pair, \ud800, is not text
    except (UnicodeDecodeError, UnicodeEncodeError) as error:
        raise Unreadable(f"cannot be read: its text is not UTF-8 ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"cannot be read: it is not JSON as it should be ({first_line(error)})") from error
    return value


def _refuse_deep(text: str) -> None:
    """Refuse deep nesting: the parser recurses, and so does everything that walks the values later."""
    depth = 0
    for token in _TOKENS.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > JSON_DEPTH:
                raise ValueError(f"nested more than {JSON_DEPTH} deep")
        elif token[0] in "]}":
            depth -= 1


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key occurs twice")
    return values


class BoundedGzip(gzip.GzipFile):
    """A gzip stream that raises :class:`Unreadable` when it unpacks to more than ``most`` bytes.

    Args:
        file: The compressed file.
        most: The limit in bytes.
    """

    def __init__(self, file: IO[bytes], most: int) -> None:
        super().__init__(fileobj=file, mode="rb")
        self.most = most

    def read(self, size: int | None = -1) -> bytes:
        """Read as from any file; at most one byte beyond the limit is unpacked."""
        left = self.most + 1 - self.tell()
        wanted = left if size is None or size < 0 else min(size, left)
        data = super().read(max(wanted, 0))
        self._refuse(self.tell())
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Seek as in any file, unpacking what lies before the position."""
        if whence == 0:
            self._refuse(offset)
        return super().seek(offset, whence)

    def _refuse(self, position: int) -> None:
        if position > self.most:
            raise Unreadable(f"unpacks to more than {self.most:,} bytes, more than {RATIO} times its size")


@contextmanager
def open_gzip(path: Path, most: int | None = None) -> Iterator[IO[bytes]]:
    """Open a file for reading, and unpack it if its first bytes say gzip, whatever its name.

    Args:
        path: The file.
        most: The limit of the content in bytes; by default :func:`unpacked_limit` for a compressed file.

    Raises:
        Unreadable: It is not a regular file, is damaged, or unpacks to more.
    """
    size = regular_size(path)
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            if not compressed:
                yield file
                return
            bound = unpacked_limit(size)
            with BoundedGzip(file, bound if most is None else min(most, bound)) as stream:
                yield stream  # type: ignore[misc]
    except EOFError as error:
        raise Unreadable("is truncated: its gzip stream has no end") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise Unreadable(f"is damaged: {error}") from error


def check_zip(path: Path, contents: bool = True) -> list[zipfile.ZipInfo]:
    """List the members of a zip archive after checking that it is complete and unpacks to an allowed size.

    The checksum of every member is verified, in pieces. Neither NumPy nor PyTorch does that: a flipped bit in a file of
    ``torch.save`` would silently give other weights. Cost: one pass over the file.

    Args:
        path: The archive.
        contents: Whether to verify checksums; False if the reader verifies them as members are read.

    Raises:
        Unreadable: It is damaged, has a name twice, or declares or unpacks to too much.
    """
    most = unpacked_limit(regular_size(path))
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) != _declared_members(path, len(members)):
                raise Unreadable("cannot be read: a member that its index declares is missing")
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise Unreadable("cannot be read: a member occurs twice")
            if any(member.flag_bits & 1 for member in members):
                raise Unreadable("cannot be read: it is encrypted")
            _bound(sum(member.file_size for member in members), most)
            total = 0
            for member in members if contents else ():
                seen = 0
                with archive.open(member) as stream:
                    while block := stream.read(_CHUNK):  # stops at the declared size, and checks the sum there
                        seen += len(block)
                        _bound(total + seen, most)
                if seen != member.file_size:
                    raise Unreadable(f"cannot be read: its member {member.filename!r} is cut short")
                total += seen
    except Unreadable:
        raise
    except zipfile.BadZipFile as error:
        reason = "a checksum is wrong" if "CRC" in str(error) else first_line(error)
        raise Unreadable(f"cannot be read: {reason}") from error
    except Exception as error:  # a damaged archive can fail in nearly any way
        raise Unreadable(f"cannot be read: {first_line(error)}") from error
    return members


def _declared_members(path: Path, unknown: int) -> int:
    """Read how many members the end of an archive declares; ``unknown`` if only a zip64 record would say.

    A damaged comment length in the index makes ``zipfile`` silently skip the members after it.
    """
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _ZIP_END))
        tail = file.read()
    place = tail.rfind(b"PK\x05\x06")
    declared = int.from_bytes(tail[place + 10 : place + 12], "little") if place >= 0 else 0xFFFF
    return unknown if declared == 0xFFFF else declared


_ZIP_END = 22 + 0xFFFF
"""The largest size of the last record of a zip archive: 22 bytes and a comment."""


def _bound(size: int, most: int) -> None:
    if size > most:
        raise Unreadable(f"cannot be read: it unpacks to more than {most:,} bytes, more than {RATIO} times its size")


def first_line(error: BaseException, most: int = 200) -> str:
    """Return the first line of an error in printable characters, without colors; its type if it is empty."""
    lines = str(error).splitlines()
    text = "".join(c if c.isprintable() else "?" for c in lines[0]) if lines else ""
    text = text or type(error).__name__
    return text if len(text) <= most else text[:most] + "..."
