"""The Zarr array of a store: creating and opening it, and listing, reading and writing its chunks."""

import json
import math
import warnings
from collections.abc import Hashable
from functools import partial
from typing import Any

import google_crc32c
import numpy as np
import torch
import zarr
from torch import Tensor, nn
from zarr.abc.store import Store
from zarr.codecs import BytesCodec, Crc32cCodec
from zarr.storage import MemoryStore, ZipStore

from tangentlab._errors import TangentError
from tangentlab._reading import first_line
from tangentlab.store._files import AtomicStore
from tangentlab.store._manifest import KEY, Manifest
from tangentlab.store._place import METADATA, Entry, Folder, PathLike, Place, Write, as_place
from tangentlab.store._tiles import MOST_TILES, Tile
from tangentlab.store._weights import kept_weights, write_weights

DTYPES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64}
REPAIR = (
    "Run store.repair(model, x, path) or 'tangentlab kernel verify PATH --repair', which compute only damaged tiles."
)
"""The remedy for a damaged tile."""
NOTE = (
    "A symmetric matrix of which only the chunks on and above the diagonal are stored, each as a whole. Chunks below "
    "the diagonal, and those not computed yet, read as NaN: take entry (i, j) below the diagonal from (j, i), or use "
    "UPLO='U' where a routine reads one triangle. tangentlab.store.open reads it as the whole matrix, and "
    "'tangentlab kernel export STORE --out FILE.zarr --symmetric' writes all of it for other programs."
)
"""The attribute of the array that tells users of other Zarr clients what they see."""
_CHUNKS = "c"
_CHECKSUM = 4
"""Bytes of a checksum at the end of a chunk."""


def new_array(store: Store, manifest: Manifest, compressors: list[Any] | None = None) -> zarr.Array:
    """Create an empty array for a kernel: one chunk per tile, checksums, NaN where nothing is computed yet."""
    plan = manifest.plan
    return zarr.create_array(
        store,
        shape=(plan.size, plan.size),
        chunks=(plan.side, plan.side),
        dtype=manifest.dtype,
        fill_value=float("nan"),
        filters=None,
        serializer=BytesCodec(endian="little"),
        compressors=[*(compressors or []), Crc32cCodec()],
        attributes={KEY: manifest.to_json(), "symmetric": True, "stored_triangle": "upper", "note": NOTE},
        config={"write_empty_chunks": True},
    )


def create(place: Place, manifest: Manifest, kept: nn.Module | None = None) -> bool:
    """Create a store, complete with its manifest, in one step.

    Args:
        place: Where.
        manifest: The description of the kernel.
        kept: A model whose weights the store keeps.

    Returns:
        False if the store already exists, for instance because another process was faster.

    Raises:
        TangentError: Something else is there.
    """
    draft: dict[str, Any] = {}
    new_array(MemoryStore(draft), manifest)
    metadata = draft[METADATA].to_bytes()
    files: dict[str, Write] = {METADATA: lambda file: file.write(metadata)}
    if kept is not None:
        files[place.weights_name(manifest.key)] = partial(write_weights, kept)
    return place.found(files)


def exists(path: PathLike | Place) -> bool:
    """Return whether there is a Zarr array or group."""
    return as_place(path).stat(METADATA) is not None


def open_array(source: PathLike | Place | Store, writable: bool = False) -> tuple[zarr.Array, Manifest]:
    """Open the array and the manifest of a store.

    Raises:
        TangentError: There is no store, it is damaged, or another program wrote it.
    """
    where = str(source)
    if not isinstance(source, Store):
        place = as_place(source)
        if not exists(place):
            place.require()
            if isinstance(place, Folder) and place.where.exists():
                raise TangentError(
                    f"{where} is not a stored kernel.",
                    "It has no zarr.json.",
                    "Pass the folder that store.compute or 'tangentlab kernel compute' made.",
                )
            raise TangentError(f"{where} does not exist.", "", "Compute a kernel into it first, or check the path.")
        source = place.array_store(writable)
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
    packed = isinstance(array.store, ZipStore)
    expected = {
        "codecs": ["bytes", "blosc", "crc32c"] if packed else ["bytes", "crc32c"],
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
    """A check, before each tile is written, that the place still holds the store that was opened.

    It may be removed and another kernel started there while processes still work on the old one.

    Args:
        place: The store.
        key: The key of its manifest.
    """

    def __init__(self, place: Place, key: str) -> None:
        self._place, self._key = place, key
        self._seen: Hashable = None

    def __call__(self) -> None:
        """Check the place.

        Raises:
            TangentError: The store is gone, or is another one.
        """
        try:
            entry = self._place.stat(METADATA)
            if entry is not None and entry.version == self._seen:
                return
            if entry is None or json.loads(bytes(self._place.read(METADATA)))["attributes"][KEY]["key"] != self._key:
                raise KeyError
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError) as error:
            raise TangentError(
                f"{self._place} has been replaced or removed while a kernel was computed into it.",
                "Tiles of two kernels would be mixed; what this process has not written yet is discarded.",
                "Repeat the call with another folder.",
            ) from error
        self._seen = entry.version


def enlarge(place: Place, manifest: Manifest) -> None:
    """Replace shape and manifest in one step, leaving all chunks as they are."""
    content = json.loads(bytes(place.read(METADATA)))
    content["shape"] = [manifest.plan.size] * 2
    content["attributes"][KEY] = manifest.to_json()
    place.write(METADATA, json.dumps(content, indent=2).encode())


def stored_weights(path: PathLike | Place) -> dict[str, Tensor] | None:
    """Read the weights that a store keeps; None if there is no store, or it keeps none."""
    place = as_place(path)
    return kept_weights(place, open_array(place)[1].key) if exists(place) else None


def chunk_name(tile: Tile) -> str:
    """Return the name of a tile's chunk."""
    return f"{_CHUNKS}/{tile[0]}/{tile[1]}"


def tile_of(name: str) -> Tile | None:
    """Return the tile of a chunk by its name; None for other files and for the lower triangle."""
    parts = name.split("/")
    if len(parts) != 3 or parts[0] != _CHUNKS or not (parts[1].isdecimal() and parts[2].isdecimal()):
        return None
    tile = int(parts[1]), int(parts[2])
    return tile if tile[0] <= tile[1] else None


def present(path: PathLike | Place) -> set[Tile]:
    """List the tiles whose chunks exist."""
    found = map(tile_of, as_place(path).names(_CHUNKS))
    return {tile for tile in found if tile is not None}


def present_entries(path: PathLike | Place) -> dict[Tile, Entry]:
    """List the tiles whose chunks exist, with their sizes and times."""
    found = ((tile_of(name), entry) for name, entry in as_place(path).entries(_CHUNKS))
    return {tile: entry for tile, entry in found if tile is not None}


def read_tile(array: zarr.Array, tile: Tile) -> np.ndarray:
    """Read a tile as an array and verify its checksum.

    Zarr reads packed stores. Elsewhere the chunk is read here: Zarr would take a missing one for NaN.

    Raises:
        TangentError: The chunk is damaged.
    """
    try:
        place = _place_of(array)
        if place is None:
            return np.asarray(array.get_block_selection(tile))
        raw = np.frombuffer(place.read(chunk_name(tile)), np.uint8)
        if len(raw) != math.prod(array.chunks) * array.dtype.itemsize + _CHECKSUM:
            raise ValueError(f"it has {len(raw)} bytes")
        body, checksum = raw[:-_CHECKSUM], raw[-_CHECKSUM:].tobytes()
        if google_crc32c.value(body).to_bytes(_CHECKSUM, "little") != checksum:
            raise ValueError("it does not have its checksum")
        values = body.view(array.dtype.newbyteorder("<")).reshape(array.chunks)
        rows, columns = (
            min(side, whole - index * side) for side, whole, index in zip(array.chunks, array.shape, tile, strict=True)
        )
        return values[:rows, :columns].astype(array.dtype)  # a copy: what was read may not be written to
    except (ValueError, EOFError, RuntimeError, IndexError, MemoryError, FileNotFoundError) as error:
        if isinstance(error, TangentError):
            raise
        raise TangentError(
            f"Tile {tile[0]}/{tile[1]} is damaged: {first_line(error)}",
            "Its content is not what was written.",
            REPAIR,
        ) from error


def _place_of(array: zarr.Array) -> Place | None:
    """Return the place of an array's files; None if it is packed in one."""
    store = array.store
    return Folder(store.root) if isinstance(store, AtomicStore) else getattr(store, "place", None)


def write_tile(array: zarr.Array, tile: Tile, values: np.ndarray) -> None:
    """Write a tile completely or not at all.

    Unless Zarr packs it, the chunk is assembled here, which avoids the copies that Zarr makes: the numbers, padded to a
    full tile, and their checksum. This is what the codecs of :func:`new_array` specify.
    """
    place = _place_of(array)
    if place is None:
        array.set_block_selection(tile, values)
        return
    if values.shape != array.chunks:
        padded = np.full(array.chunks, array.fill_value, array.dtype)
        padded[: values.shape[0], : values.shape[1]] = values
        values = padded
    raw = np.ascontiguousarray(values, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    place.write(chunk_name(tile), raw.data, google_crc32c.value(raw).to_bytes(_CHECKSUM, "little"))
