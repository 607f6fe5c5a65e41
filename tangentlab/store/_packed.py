"""A store in one file: what is read from the archive, and what is refused before it is unpacked."""

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
        tile_bytes: Of a tile in memory; None as long as that is not known.
    """

    tile_bytes: int | None = None

    def _get(self, key: str, *args: Any, **kwargs: Any) -> Any:
        try:
            buffer = super()._get(key, *args, **kwargs)
        except Exception as error:  # a damaged archive can fail in nearly any way
            raise ValueError(f"its file {key} in the archive is damaged ({first_line(error)})") from error
        if key.startswith("c/") and buffer is not None and self.tile_bytes is not None:
            header = buffer.to_bytes()[:_BLOSC_HEADER]
            promised = int.from_bytes(header[4:8], "little")  # what Blosc allocates before it looks any further
            if len(header) < _BLOSC_HEADER or promised != self.tile_bytes:
                raise ValueError(f"it unpacks to {promised:,} bytes, and a tile has {self.tile_bytes:,}")
        return buffer


def open_packed(path: Path) -> PackedStore:
    """Open the archive of a packed store; its index is checked, nothing is unpacked.

    Raises:
        TangentError: It is no whole archive, or declares to unpack to too much.
    """
    try:
        check_zip(path, contents=False)
    except Unreadable as error:
        raise TangentError(
            f"{path} is not a stored kernel.",
            f"it {error}.",
            "pass a folder or what store.pack made.",
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
