"""Exporting kernels: a NumPy file, or one compact file that any Zarr client opens."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from zarr.codecs import BloscCodec
from zarr.storage import ZipStore

from tangentlab._errors import TangentError
from tangentlab._files import process_name, sync_folder, written_whole
from tangentlab._progress import progress_bar
from tangentlab.store._array import DTYPES, create, new_array, open_array, write_tile
from tangentlab.store._files import PRIVATE, disk_errors
from tangentlab.store._inventory import Inventory
from tangentlab.store._kernel import StoredKernel

PathLike = str | os.PathLike[str]


def export_npy(source: PathLike | StoredKernel, path: PathLike, *, progress: bool | None = None) -> Path:
    """Write the whole symmetric kernel, (n, n), as a NumPy file.

    Args:
        source: A store.
        path: The file; it appears when it is complete.
        progress: Whether to show a progress bar; None shows one on a terminal.

    Memory: the rows of one tile. ``numpy.load(path, mmap_mode="r")`` reads parts of the file.
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

    Args:
        source: A store.
        path: The file; by convention its name ends in ``.zarr.zip``. It appears when it is complete.
        dtype: "float32" or "float16" to round to; the manifest then says so. None to keep every bit.
        progress: Whether to show a progress bar; None shows one on a terminal.
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


def unpack(source: PathLike, path: PathLike, *, progress: bool | None = None) -> StoredKernel:
    """Write a packed kernel back into a folder, as it was before packing.

    Args:
        source: The file that :func:`pack` made.
        path: The store.
        progress: Whether to show a progress bar; None shows one on a terminal.
    """
    kernel, target = _complete(source), Path(path)
    with disk_errors(target):
        if not create(target, kernel.manifest):
            open_array(target)[1].refuse_other(kernel.manifest, target)
        array, manifest = open_array(target, writable=True)
        missing = set(Inventory(target, array, manifest).missing())
        with progress_bar("Unpack", kernel.plan.count, progress) as tick:
            for tile, values in kernel.tiles():
                if tile in missing:
                    write_tile(array, tile, values.cpu().numpy())
                tick(1)
    shutil.rmtree(target / PRIVATE, ignore_errors=True)
    return StoredKernel(target)


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
