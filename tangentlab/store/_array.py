"""The Zarr array of a store: creating and opening it, and listing, reading and writing its chunks."""

import json
import math
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import torch
import zarr
from torch import nn
from zarr.abc.store import Store
from zarr.codecs import BytesCodec, Crc32cCodec

from tangentlab._errors import TangentError
from tangentlab._files import process_name, sync_folder, written_whole
from tangentlab._reading import first_line
from tangentlab.store._files import PRIVATE, AtomicStore
from tangentlab.store._manifest import KEY, Manifest
from tangentlab.store._tiles import MOST_TILES, Tile
from tangentlab.store._weights import keep_weights

DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
REPAIR = (
    "Run store.repair(model, x, path) or 'tangentlab kernel verify PATH --repair', which compute only damaged tiles."
)
"""The remedy for a damaged tile."""
_METADATA = "zarr.json"
_CHECKSUM = 4
"""Bytes of a checksum at the end of a chunk."""


def new_array(store: Store | Path, manifest: Manifest, compressors: list[Any] | None = None) -> zarr.Array:
    """Create an empty array for a kernel: one chunk per tile, checksums, NaN where nothing is computed yet."""
    plan = manifest.plan
    if isinstance(store, Path):
        store = AtomicStore(store)
    return zarr.create_array(
        store,
        shape=(plan.size, plan.size),
        chunks=(plan.side, plan.side),
        dtype=manifest.dtype,
        fill_value=float("nan"),
        filters=None,
        serializer=BytesCodec(endian="little"),
        compressors=[*(compressors or []), Crc32cCodec()],
        attributes={KEY: manifest.to_json()},
        config={"write_empty_chunks": True},
    )


def create(path: Path, manifest: Manifest, kept: nn.Module | None = None) -> bool:
    """Create a store, complete with its manifest, in one step.

    Args:
        path: The folder.
        manifest: The description of the kernel.
        kept: A model whose weights the store keeps.

    Returns:
        False if the store already exists, for instance because another process was faster.

    Raises:
        TangentError: The folder holds something else.
    """
    path = _resolved(path)  # a folder can be moved to where a link points, not onto the link
    path.parent.mkdir(parents=True, exist_ok=True)
    if exists(path):
        return False
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise TangentError(
            f"{path} exists and is not a stored kernel.",
            "Existing files are never overwritten.",
            "Choose another folder.",
        )
    draft = path.parent / f".{path.name}.{process_name()}.draft"
    try:
        new_array(draft, manifest)
        if kept is not None:
            keep_weights(draft, kept)
        os.rename(draft, path)  # fails if the folder exists and is not empty
    except OSError:
        if not exists(path):
            raise
        return False
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    sync_folder(path.parent)
    return True


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except RuntimeError as error:  # Python's error for links that point at each other
        raise TangentError(f"{path} is a link that leads nowhere.", f"{error}.", "Choose another folder.") from error


def exists(path: Path) -> bool:
    """Return whether a folder holds a Zarr array or group."""
    return (path / _METADATA).exists()


def open_array(source: Path | Store, writable: bool = False) -> tuple[zarr.Array, Manifest]:
    """Open the array and the manifest of a store.

    Raises:
        TangentError: There is no store, it is damaged, or another program wrote it.
    """
    where = str(source)
    if isinstance(source, Path):
        if not source.exists():
            raise TangentError(f"{source} does not exist.", "", "Compute a kernel into it first, or check the path.")
        if not exists(source):
            raise TangentError(
                f"{source} is not a stored kernel.",
                "It has no zarr.json.",
                "Pass the folder that store.compute or 'tangentlab kernel compute' made.",
            )
        source = AtomicStore(source, read_only=not writable)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            node = zarr.open(source, mode="r+" if writable else "r", zarr_format=3)
    except Exception as error:  # an edited file can fail anywhere in Zarr
        raise TangentError(
            f"{where} cannot be opened: its zarr.json is damaged ({first_line(error)}).",
            "Without it the tiles have no meaning.",
            "Restore zarr.json from a copy, or compute the kernel again in another folder.",
        ) from error
    attributes: Any = node.metadata.attributes
    if not isinstance(node, zarr.Array) or not isinstance(attributes, dict) or KEY not in attributes:
        raise TangentError(
            f"{where} is a Zarr {'array' if isinstance(node, zarr.Array) else 'group'} that tangentlab did not make.",
            "A stored kernel carries a manifest.",
            "Pass the folder of a stored kernel, or a new folder to compute into.",
        )
    manifest = Manifest.from_json(node.attrs[KEY], where)
    _refuse_edited(node, manifest, where)
    return node.with_config({"write_empty_chunks": True}), manifest


def _refuse_edited(array: zarr.Array, manifest: Manifest, where: str) -> None:
    """Refuse an array that differs from what :func:`new_array` creates: its numbers would be misread."""
    plan, remedy = manifest.plan, "Restore zarr.json from a copy, or compute the kernel again."
    said = manifest.dtype, (plan.size, plan.size), (plan.side, plan.side)
    found = str(array.dtype), array.shape, array.chunks
    if said != found or manifest.dtype not in DTYPES:
        raise TangentError(
            f"{where} contradicts its manifest.",
            "The array is {} {} in chunks of {}, the manifest says {} {} in chunks of {}.".format(*found, *said),
            remedy,
        )
    if plan.count > MOST_TILES:
        raise TangentError(f"{where} declares {plan.count} tiles.", f"A store has at most {MOST_TILES}.", remedy)
    metadata = array.metadata.to_dict()
    codecs: Any = metadata["codecs"]
    folder = isinstance(array.store, AtomicStore)
    expected = {
        "codecs": ["bytes", "crc32c"] if folder else ["bytes", "blosc", "crc32c"],
        "byte order": {"endian": "little"},
        "names of chunks": {"name": "default", "configuration": {"separator": "/"}},
        "fill value": "NaN",
    }
    there = {
        "codecs": [codec["name"] for codec in codecs],
        "byte order": codecs[0].get("configuration"),
        "names of chunks": metadata["chunk_key_encoding"],
        "fill value": metadata["fill_value"],
    }
    for what, value in expected.items():
        if there[what] != value:
            raise TangentError(
                f"{where} was not written by tangentlab, or was edited.",
                f"Its {what}: {there[what]}, not {value}; the numbers would be misread.",
                remedy,
            )


class Guard:
    """A check, before each tile is written, that the folder still holds the store that was opened.

    The folder may be removed and another kernel started there while processes still work on the old one.

    Args:
        path: The store.
        key: The key of its manifest.
    """

    def __init__(self, path: Path, key: str) -> None:
        self._file, self._key = path / _METADATA, key
        self._seen: tuple[int, ...] = ()

    def __call__(self) -> None:
        """Check the folder.

        Raises:
            TangentError: The store is gone, or is another one.
        """
        try:
            state = self._file.stat()
            seen = state.st_dev, state.st_ino, state.st_mtime_ns, state.st_size
            if seen == self._seen:
                return
            if json.loads(self._file.read_text())["attributes"][KEY]["key"] != self._key:
                raise KeyError
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError) as error:
            raise TangentError(
                f"{self._file.parent} has been replaced or removed while a kernel was computed into it.",
                "Tiles of two kernels would be mixed; what this process has not written yet is discarded.",
                "Repeat the call with another folder.",
            ) from error
        self._seen = seen


def enlarge(path: Path, manifest: Manifest) -> None:
    """Replace shape and manifest in one step, leaving all chunks as they are."""
    file = path / _METADATA
    content = json.loads(file.read_text())
    content["shape"] = [manifest.plan.size] * 2
    content["attributes"][KEY] = manifest.to_json()
    with written_whole(file, path / PRIVATE / "unfinished") as out:
        out.write(json.dumps(content, indent=2).encode())


def chunk_file(path: Path, tile: Tile) -> Path:
    """Return the file of a tile's chunk."""
    return path / "c" / str(tile[0]) / str(tile[1])


def present(path: Path) -> set[Tile]:
    """List the tiles whose chunks exist."""
    found: set[Tile] = set()
    rows = path / "c"
    for row in os.scandir(rows) if rows.is_dir() else ():
        if row.name.isdecimal() and row.is_dir():
            found.update((int(row.name), int(entry.name)) for entry in os.scandir(row) if entry.name.isdecimal())
    return {tile for tile in found if tile[0] <= tile[1]}


def read_tile(array: zarr.Array, tile: Tile) -> np.ndarray:
    """Read a tile as an array and verify its checksum.

    Raises:
        TangentError: The chunk is damaged.
    """
    try:
        if isinstance(array.store, AtomicStore):
            size = chunk_file(array.store.root, tile).stat().st_size  # a missing chunk would be read as NaN
            if size != math.prod(array.chunks) * array.dtype.itemsize + _CHECKSUM:
                raise ValueError(f"it has {size} bytes")
        return np.asarray(array.get_block_selection(tile))
    except (ValueError, EOFError, RuntimeError, IndexError, MemoryError, FileNotFoundError) as error:
        raise TangentError(
            f"Tile {tile[0]}/{tile[1]} is damaged: {first_line(error)}",
            "Its content is not what was written.",
            REPAIR,
        ) from error


def write_tile(array: zarr.Array, tile: Tile, values: np.ndarray) -> None:
    """Write a tile completely or not at all.

    In a folder, the chunk is assembled here, which avoids the copies that Zarr makes: the numbers, padded to a full
    tile, and their checksum. This is what the codecs of :func:`new_array` specify.
    """
    store = array.store
    if not isinstance(store, AtomicStore):
        array.set_block_selection(tile, values)
        return
    if values.shape != array.chunks:
        padded = np.full(array.chunks, array.fill_value, array.dtype)
        padded[: values.shape[0], : values.shape[1]] = values
        values = padded
    raw = np.ascontiguousarray(values, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    store.write(chunk_file(Path(), tile), raw.data, google_crc32c.value(raw).to_bytes(4, "little"))
