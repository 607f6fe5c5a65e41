"""MNIST's IDX format: a magic number, the sizes, the bytes; gzip-compressed or not."""

import gzip
import hashlib
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tangentlab.data._corrupt import corrupt

_UBYTE = 0x08
_GZIP = b"\x1f\x8b"


def read_idx(path: Path, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    """The array of an IDX file of unsigned bytes, and the MD5 of its uncompressed content.

    Args:
        path: The file. Whether it is compressed is seen from its first bytes, not from its name.
        dimensions: 1 for labels, 3 for images.

    Raises:
        TangentError: For a truncated or damaged file, another type, or a size that the header does
            not say.
    """
    content = _content(path)
    header = 4 + 4 * dimensions
    expected = bytes([0, 0, _UBYTE, dimensions])
    if content[:4] != expected:
        raise corrupt(path, f"does not begin with {expected.hex(' ')} but with {content[:4].hex(' ') or 'nothing'}")
    if len(content) < header:
        raise corrupt(path, f"ends within its header, after {len(content)} bytes")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    size = header + int(np.prod(shape, dtype=object))  # Python integers: a damaged header must not overflow
    if len(content) != size:
        raise corrupt(path, f"has {len(content):,} bytes of content where its header {shape} promises {size:,}")
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return np.frombuffer(content, np.uint8, offset=header).reshape(shape), md5


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        start = file.read(2)
        file.seek(0)
        if start != _GZIP:
            return file.read()
        try:
            return gzip.GzipFile(fileobj=file).read()
        except EOFError as error:
            raise corrupt(path, "is truncated: its gzip stream has no end") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise corrupt(path, f"is damaged: {error}") from error
