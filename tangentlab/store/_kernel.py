"""A stored kernel as a symmetric matrix: blocks, products, the diagonal."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zarr
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._extras import require
from tangentlab._html import card
from tangentlab._progress import progress_bar
from tangentlab.kernels.internal import all_finite
from tangentlab.store._array import DTYPES, REPAIR, chunk_name, open_array, present_entries, read_tile
from tangentlab.store._indexing import as_slice, pick, positions
from tangentlab.store._inventory import Inventory
from tangentlab.store._manifest import Manifest
from tangentlab.store._packed import PackedStore, open_packed, packed_tiles
from tangentlab.store._place import Folder, PathLike, Place, as_place
from tangentlab.store._tiles import Tile
from tangentlab.store._verify import Verification, verify_tiles


class StoredKernel:
    """A symmetric (n, n) stored kernel, n = N R; rows run over samples, then over readouts.

    Tiles are read when they are needed, and checked against their checksums. Only the upper triangle is stored; every
    access is symmetric.

    Cost: a block reads the tiles that it overlaps. A product with m vectors reads n^2 / 2 numbers, each tile once, and
    takes 2 n^2 m operations. Memory: a few tiles.

    Args:
        path: The folder of a store, its address in an object store ("s3://bucket/kernel.zarr"), or a packed store
            (``.zip``).
        device: The device of blocks and products.
    """

    def __init__(self, path: PathLike | Place, device: torch.device | str = "cpu") -> None:
        self.place = as_place(path)
        self.path = self.place.where
        self.device = torch.device(device)
        self._array: zarr.Array
        self.manifest: Manifest
        source = open_packed(Path(self.path)) if self.packed else self.place
        self._array, self.manifest = open_array(source)
        if isinstance(source, PackedStore):
            source.tile_bytes = math.prod(self._array.chunks) * self._array.dtype.itemsize
        self.plan = self.manifest.plan
        self._complete = False

    @property
    def packed(self) -> bool:
        """Whether the kernel is a single file."""
        return isinstance(self.place, Folder) and self.place.where.is_file()

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, n)."""
        return self.plan.size, self.plan.size

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the entries."""
        return DTYPES[self.manifest.dtype]

    @property
    def tile(self) -> int:
        """The rows of a tile: blocks that start and end at multiples of it read nothing twice."""
        return self.plan.side

    @property
    def missing(self) -> list[Tile]:
        """The tiles that are not computed yet."""
        if self._complete:
            return []
        if self.packed:
            found = packed_tiles(Path(self.path))
            missing = [tile for tile in self.plan.tiles() if tile not in found]
        else:
            missing = Inventory(self.place, self._array, self.manifest).missing()
        self._complete = not missing
        return missing

    @property
    def complete(self) -> bool:
        """Whether all tiles are computed."""
        return not self.missing

    @property
    def progress(self) -> float:
        """The share of the entries that are computed, 0 to 1."""
        return 1 - sum(map(self.plan.entries, self.missing)) / (len(self) * (len(self) + 1) // 2)

    def __repr__(self) -> str:
        return f"StoredKernel({str(self.path)!r}, shape={self.shape}, dtype={self.dtype}, {self._state})"

    def _repr_html_(self) -> str:
        facts = {"path": self.path, "shape": self.shape, "dtype": self.dtype, "tile": self.tile, "state": self._state}
        return card("StoredKernel", facts)

    @property
    def _state(self) -> str:
        return "complete" if self.complete else f"{self.progress:.1%} computed"

    def __len__(self) -> int:
        return self.plan.size

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredKernel, (self.path, self.device)

    # Blocks

    def read(self, rows: slice = slice(None), columns: slice = slice(None)) -> Tensor:
        """Read a block as a tensor (r, c) on the device.

        Raises:
            TangentError: A tile of the block is missing or damaged.
        """
        for part in (rows, columns):
            if not isinstance(part, slice):
                raise TangentError(
                    f"The method read takes two slices, not {part!r}.", "", "Use kernel[rows, columns] for more."
                )
        return self._gather(positions(rows, len(self)), positions(columns, len(self)))

    def __getitem__(self, index: Any) -> Tensor:
        """Index as a NumPy array: ints, slices, and lists, arrays or masks of rows, of columns, or of both.

        Two lists give the block of all their pairs, as ``kernel[np.ix_(rows, columns)]`` does in NumPy.
        """
        parts = index if isinstance(index, tuple) else (index,)
        parts = tuple(p for p in parts if p is not Ellipsis)
        if len(parts) > 2:
            raise TangentError(f"The kernel has two axes and was given {len(parts)} indices.", "", "Use kernel[i, j].")
        chosen = [positions(part, len(self)) for part in (*parts, *([slice(None)] * (2 - len(parts))))]
        block = self._gather(*chosen)
        single = [isinstance(part, int | np.integer) and not isinstance(part, bool) for part in parts]
        for axis in reversed(range(len(single))):
            if single[axis]:
                block = block.select(axis, 0)
        return block

    def _gather(self, rows: Tensor, columns: Tensor) -> Tensor:
        out = torch.empty(len(rows), len(columns), dtype=self.dtype)
        side = self.plan.side
        for i in torch.unique(rows // side).tolist():
            to_rows = torch.nonzero(rows // side == i).flatten()
            for j in torch.unique(columns // side).tolist():
                to_columns = torch.nonzero(columns // side == j).flatten()
                values = self._tile((i, j))
                picked = pick(values, rows[to_rows] - i * side, columns[to_columns] - j * side)
                where = as_slice(to_rows), as_slice(to_columns)
                if all(isinstance(part, slice) for part in where):
                    out[where] = picked
                else:
                    out[to_rows[:, None], to_columns] = picked
        return out.to(self.device)

    def _tile(self, tile: Tile) -> Tensor:
        """Read a tile of either triangle, on the CPU."""
        if tile[0] > tile[1]:
            return self._tile((tile[1], tile[0])).T
        if not self._complete and not self._has(tile):
            raise TangentError(
                f"Tile {self.plan.name(tile)} of {self.path} is not computed yet.",
                f"{self.progress:.1%} of the kernel is computed.",
                "Resume with the same call of store.compute, or with 'tangentlab kernel resume'.",
            )
        values = torch.from_numpy(read_tile(self._array, tile))
        if not all_finite(values):
            raise TangentError(
                f"Tile {self.plan.name(tile)} of {self.path} is damaged: it holds NaN or infinite values.",
                "Stored kernels have only finite values.",
                REPAIR,
            )
        return values

    def _has(self, tile: Tile) -> bool:
        if self.packed:
            return tile not in self.missing
        return Inventory(self.place, self._array, self.manifest).is_done(tile)

    def tiles(self) -> Iterator[tuple[Tile, Tensor]]:
        """Iterate over all stored tiles; each is read once, while the previous one is used."""
        order = list(self.plan.tiles())
        with ThreadPoolExecutor(1) as reader:
            ahead = reader.submit(self._tile, order[0])
            for number, tile in enumerate(order):
                values = ahead.result()
                if number + 1 < len(order):
                    ahead = reader.submit(self._tile, order[number + 1])
                yield tile, values.to(self.device)

    def to_tensor(self) -> Tensor:
        """Load the whole kernel into memory, (n, n)."""
        out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
        for (i, j), values in self.tiles():
            out[self.plan.rows(i), self.plan.rows(j)] = values
            if i != j:
                out[self.plan.rows(j), self.plan.rows(i)] = values.T
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.to_tensor().cpu().numpy().astype(dtype or self._array.dtype, copy=False)

    def to_dask(self) -> Any:
        """Return the kernel as a dask array, (n, n), one chunk per tile; needs the extra ``tangentlab[dask]``."""
        dask_array = require("dask.array", "Dask", "dask", "The kernel would be a Dask array.")
        return dask_array.from_array(_NumpyBlocks(self), chunks=self.plan.side, lock=False, asarray=False)

    # Products

    def __matmul__(self, v: Tensor | np.ndarray) -> Tensor:
        """Compute K v for a vector (n,) or a block (n, m): every tile is read once and used for both triangles."""
        if isinstance(v, np.ndarray):
            v = torch.from_numpy(v)
        if not isinstance(v, Tensor) or v.ndim not in (1, 2) or v.shape[0] != len(self):
            found = tuple(v.shape) if hasattr(v, "shape") else type(v).__name__
            raise TangentError(
                f"The kernel {self.shape} was multiplied with {found}.",
                f"It takes a tensor of shape ({len(self)},) or ({len(self)}, m).",
                "Rows run over samples, then over readouts: use v.reshape(N * R, -1).",
            )
        block = v.detach().to(dtype=self.dtype, device=self.device).reshape(len(self), -1)
        out = torch.zeros_like(block)
        for (i, j), values in self.tiles():
            out[self.plan.rows(i)].addmm_(values, block[self.plan.rows(j)])
            if i != j:
                out[self.plan.rows(j)].addmm_(values.T, block[self.plan.rows(i)])
        return out[:, 0] if v.ndim == 1 else out

    def diagonal(self) -> Tensor:
        """Read the diagonal, (n,)."""
        return torch.cat([self._tile((i, i)).diagonal() for i in range(self.plan.panels)]).to(self.device)

    # Integrity

    def verify(self, progress: bool | None = None) -> Verification:
        """Read every tile and compare it with its checksum.

        Returns:
            The damaged and the missing tiles.
        """
        missing = self.missing
        left = set(missing)
        tiles = [tile for tile in self.plan.tiles() if tile not in left]
        with progress_bar("Verify", len(tiles), progress) as tick:
            return verify_tiles(self._array, self.plan, tiles, missing, tick)

    def discard(self, tiles: list[Tile]) -> None:
        """Remove tiles, so that they are computed again."""
        for tile in tiles:
            self.place.remove(chunk_name(tile))
        self._complete = self._complete and not tiles

    @property
    def nbytes_stored(self) -> int:
        """The size on disk in bytes."""
        if self.packed:
            return Path(self.path).stat().st_size
        return sum(entry.size for entry in present_entries(self.place).values())


class _NumpyBlocks:
    """An array interface from which dask cuts blocks."""

    ndim = 2

    def __init__(self, kernel: StoredKernel) -> None:
        self.kernel, self.shape = kernel, kernel.shape
        self.dtype = np.dtype(kernel.manifest.dtype)

    def __getitem__(self, index: Any) -> np.ndarray:
        return self.kernel[index].cpu().numpy()
