"""MNIST's IDX format: a magic number, the sizes, the bytes; gzip-compressed or not."""

import hashlib
import math
import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tangentlab._reading import RATIO, Unreadable, open_gzip, regular_size, unpacked_limit
from tangentlab.data._corrupt import corrupt

_UBYTE = 0x08


def read_idx(path: Path, dimensions: int) -> tuple[NDArray[np.uint8], str]:
    """Read the array of an IDX file of unsigned bytes, and the MD5 of its uncompressed content.

    The header says how many bytes follow; those, and one to see whether there are more, are all that is unpacked.

    Args:
        path: The file. Whether it is compressed is seen from its first bytes, not from its name.
        dimensions: 1 for labels, 3 for images.

    Raises:
        TangentError: For a truncated or damaged file, another type, or a size that the header does
            not say.
    """
    expected = bytes([0, 0, _UBYTE, dimensions])
    try:
        packed = regular_size(path)
        with open_gzip(path) as file:
            header = file.read(4 + 4 * dimensions)
            if header[:4] != expected:
                begin = header[:4].hex(" ") or "nothing"
                raise corrupt(path, f"does not begin with {expected.hex(' ')} but with {begin}")
            if len(header) < 4 + 4 * dimensions:
                raise corrupt(path, f"ends within its header, after {len(header)} bytes")
            shape = struct.unpack(f">{dimensions}I", header[4:])
            size = math.prod(shape)
            said = f"where its header {shape} announces {len(header) + size:,}"
            if size > unpacked_limit(packed):
                raise corrupt(path, f"has {packed:,} bytes {said}, more than {RATIO} times as many")
            content = header + file.read(size)
            # To the end: only there a compressed stream tells whether it is damaged.
            more = len(file.read(1))
    except Unreadable as error:
        raise corrupt(path, str(error)) from error
    if len(content) != len(header) + size or more:
        there = f"more than {len(content):,}" if more else f"{len(content):,}"
        raise corrupt(path, f"has {there} bytes of content {said}")
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    return np.frombuffer(content, np.uint8, offset=len(header)).reshape(shape), md5
