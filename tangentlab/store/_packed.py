"""A store in a single file: reading the archive, and refusing a damaged one before it is unpacked."""

import zipfile
from pathlib import Path
from typing import Any

from zarr.storage import ZipStore

from tangentlab._errors import TangentError
from tangentlab._reading import Unreadable, check_zip, first_line
from tangentlab.store._tiles import Tile

_BLOSC_HEADER = 16


class PackedStore(ZipStore):
    """Zarr's zip archive, with one kind of error for all damage, and a limit on the unpacked size of a tile.

    Attributes:
        tile_bytes: The size of a tile in memory; None until it is known.
    """

    tile_bytes: int | None = None

    def _get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        try:
            buffer = super()._get(key, *args, **kwargs)
        except Exception as error:  # a damaged archive can fail in nearly any way
            raise ValueError(f"its file {key} in the archive is damaged ({first_line(error)})") from error
        if key.startswith("c/") and buffer is not None and self.tile_bytes is not None:
            header = buffer.to_bytes()[:_BLOSC_HEADER]
            declared = int.from_bytes(header[4:8], "little")  # what Blosc allocates before any other check
            if len(header) < _BLOSC_HEADER or declared != self.tile_bytes:
                raise ValueError(f"it unpacks to {declared:,} bytes, and a tile has {self.tile_bytes:,}")
        return buffer


def open_packed(path: Path) -> PackedStore:
    """Open the archive of a packed store; its index is checked, nothing is unpacked.

    Raises:
        TangentError: It is not a complete archive, or declares too large a content.
    """
    try:
        check_zip(path, contents=False)
    except Unreadable as error:
        raise TangentError(
            f"{path} is not a stored kernel.",
            f"It {error}.",
            "Pass a folder or what store.pack made.",
        ) from error
    return PackedStore(path, mode="r")


def packed_tiles(path: Path) -> set[Tile]:
    """List the tiles of a packed store."""
    with zipfile.ZipFile(path) as archive:
        names = [name.split("/") for name in archive.namelist()]
    return {
        (int(parts[1]), int(parts[2]))
        for parts in names
        if len(parts) == 3 and parts[0] == "c" and all(p.isascii() and p.isdecimal() and len(p) < 19 for p in parts[1:])
    }
