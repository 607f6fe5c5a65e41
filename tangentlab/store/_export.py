"""Exporting kernels: a NumPy file, or one compact file that any Zarr client opens."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import zarr
from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec
from zarr.storage import ZipStore

from tangentlab._errors import TangentError
from tangentlab._files import process_name, sync_folder, written_whole
from tangentlab._progress import progress_bar
from tangentlab.store._array import DTYPES, create, new_array, open_array, write_tile
from tangentlab.store._files import PRIVATE, disk_errors
from tangentlab.store._inventory import Inventory
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._place import PathLike, as_place, occupied


def export_npy(source: PathLike | StoredKernel, path: PathLike, *, progress: bool | None = None) -> Path:
    """Write the whole symmetric kernel, (n, n), as a NumPy file.

    Args:
        source: A store.
        path: The file; it appears when it is complete.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Cost: n^2 numbers read and written, tiles off the diagonal twice. Memory: the rows of one tile.
    ``numpy.load(path, mmap_mode="r")`` reads parts of the file.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> import numpy
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> numpy.load(store.export_npy("kernel.zarr", "kernel.npy", progress=False)).shape
        (20, 20)

    See also:
        :func:`tangentlab.store.export_zarr`, :func:`tangentlab.store.pack`.
    """
    kernel, target = _complete(source), Path(path)
    progress_of = progress_bar("Export", kernel.plan.panels, progress)
    with disk_errors(target), progress_of as tick, written_whole(target) as file:
        header = {"descr": np.dtype(kernel.manifest.dtype).str, "fortran_order": False, "shape": kernel.shape}
        np.lib.format.write_array_header_2_0(file, header)
        for panel in range(kernel.plan.panels):
            file.write(kernel.read(kernel.plan.rows(panel)).contiguous().cpu().numpy().data)
            tick(1)
    return target


def pack(
    source: PathLike | StoredKernel, path: PathLike, *, dtype: str | None = None, progress: bool | None = None
) -> Path:
    """Write a kernel into one compact file to share: the upper triangle, compressed without loss, with its manifest.

    The file is a zipped Zarr array: :func:`open`, ``zarr.open`` with a ``ZipStore``, and other Zarr clients read it.

    Cost: n^2 / 2 numbers read and compressed, for n rows. Memory: a few tiles.

    Args:
        source: A store.
        path: The file; by convention its name ends in ``.zarr.zip``. It appears when it is complete.
        dtype: "float32" or "float16" to round to; the manifest then says so. None to keep every bit.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> store.pack("kernel.zarr", "kernel.zip", progress=False).name
        'kernel.zip'

    See also:
        :func:`tangentlab.store.copy`, :func:`tangentlab.store.export_npy`.
    """
    kernel, target = _complete(source), Path(path)
    manifest = kernel.manifest
    if dtype is not None and dtype != manifest.dtype:
        if dtype not in DTYPES or np.dtype(dtype).itemsize > np.dtype(manifest.dtype).itemsize:
            raise TangentError(
                f"A kernel of {manifest.dtype} cannot be packed as {dtype!r}.",
                "Packing keeps the precision or lowers it.",
                'Pass "float32" or "float16", or None.',
            )
        manifest = replace(manifest, dtype=dtype, provenance={**manifest.provenance, "rounded_from": manifest.dtype})
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.parent / f".{target.name}.{process_name()}.partial"
    try:
        with disk_errors(target), progress_bar("Pack", kernel.plan.count, progress) as tick:
            archive = ZipStore(draft, mode="w")
            try:
                array = new_array(archive, manifest, [BloscCodec(cname="zstd", clevel=5, shuffle="shuffle")])
                for tile, values in kernel.tiles():
                    write_tile(array, tile, _rounded(values.cpu().numpy(), manifest.dtype))
                    tick(1)
            finally:
                archive.close()
            with open(draft, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(draft, target)
            sync_folder(target.parent)
    finally:
        draft.unlink(missing_ok=True)
    return target


def copy(source: PathLike, path: PathLike, *, progress: bool | None = None) -> StoredKernel:
    """Write a packed kernel, or a store, into a store elsewhere: a folder or an object store.

    Cost: n^2 / 2 numbers read, for n rows; tiles that are not there yet are written. Memory: a few tiles.

    Args:
        source: The file that :func:`pack` made, or any complete store.
        path: The store.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> store.copy("kernel.zarr", "copy.zarr", progress=False).shape
        (20, 20)

    See also:
        :func:`tangentlab.store.pack`, :func:`tangentlab.store.export_npy`.
    """
    kernel, target = _complete(source), as_place(path)
    with target.errors():
        if not create(target, kernel.manifest):
            open_array(target)[1].refuse_other(kernel.manifest, target)
        array, manifest = open_array(target, writable=True)
        missing = set(Inventory(target, array, manifest).missing())
        with progress_bar("Unpack", kernel.plan.count, progress) as tick:
            for tile, values in kernel.tiles():
                if tile in missing:
                    write_tile(array, tile, values.cpu().numpy())
                tick(1)
    target.clear(PRIVATE)
    return StoredKernel(target)


def export_zarr(source: PathLike | StoredKernel, path: PathLike, *, progress: bool | None = None) -> PathLike:
    """Write the whole symmetric kernel, (n, n), as a plain Zarr array with both triangles, for other programs.

    Args:
        source: A store.
        path: A folder that does not exist yet, or an address in an object store.
        progress: Whether to show a progress bar; None shows one on a terminal.

    The array has the store's tiles as chunks and no manifest: :func:`open` does not read it. Its attributes are
    ``symmetric`` and ``complete``; the second one is set when all chunks are written.

    Cost: n^2 / 2 numbers read and n^2 written, twice the size of the store. Memory: a few tiles.

    Examples:
        >>> import torch
        >>> from tangentlab import store
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> import zarr
        >>> kernel = store.compute(network, x, "kernel.zarr", readout="pntk", progress=False)
        >>> zarr.open(store.export_zarr("kernel.zarr", "both.zarr", progress=False)).shape
        (20, 20)

    See also:
        :func:`tangentlab.store.export_npy`, :func:`tangentlab.store.copy`.
    """
    kernel, target = _complete(source), as_place(path)
    with target.errors(), progress_bar("Export", kernel.plan.count, progress) as tick:
        if next(iter(target.names("")), None) is not None:
            raise occupied(target)
        array = zarr.create_array(
            target.array_store(True),
            shape=kernel.shape,
            chunks=(kernel.tile, kernel.tile),
            dtype=kernel.manifest.dtype,
            fill_value=float("nan"),
            filters=None,
            serializer=BytesCodec(endian="little"),
            compressors=[Crc32cCodec()],
            attributes={"symmetric": True, "complete": False},
            config={"write_empty_chunks": True},
        )
        for (row, column), values in kernel.tiles():
            write_tile(array, (row, column), values.cpu().numpy())
            if row != column:
                write_tile(array, (column, row), values.T.cpu().numpy())
            tick(1)
        array.update_attributes({"complete": True})
    target.clear(PRIVATE)
    return path


def _complete(source: PathLike | StoredKernel) -> StoredKernel:
    kernel = source if isinstance(source, StoredKernel) else StoredKernel(source)
    if not kernel.complete:
        raise TangentError(
            f"{kernel.path} is not complete: {kernel.progress:.1%} of it is computed.",
            "The rest would be missing from the copy.",
            "Resume with the same call of store.compute, or with 'tangentlab kernel resume'.",
        )
    return kernel


def _rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    with np.errstate(over="ignore"):
        rounded = values.astype(dtype, copy=False)
    if not np.isfinite(rounded).all():
        raise TangentError(
            f"The kernel has entries as large as {np.abs(values).max():.3g}.",
            f"{dtype} holds numbers up to {np.finfo(dtype).max:.3g}.",
            'Pack it as "float32", or without dtype.',
        )
    return rounded
