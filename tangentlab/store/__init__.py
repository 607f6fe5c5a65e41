"""Stored kernels: larger than memory, resumable, shared among processes, verified; on disk or in an object store.

    >>> from tangentlab import store
    >>> kernel = store.compute(model, x, "kernel.zarr", memory_budget="4GiB")   # rerun to resume
    >>> kernel = store.open("kernel.zarr")
    >>> kernel.read(slice(0, 100), slice(500, 600)), kernel[7], kernel @ v, kernel.diagonal()
    >>> store.pack("kernel.zarr", "kernel.zarr.zip")                             # a single file to share

A store is a plain Zarr v3 array of shape (N R, N R). A chunk is a tile with a checksum. Only the tiles of the upper
triangle are stored; the others, and those not computed yet, read as NaN in other Zarr clients, which the array's
attribute ``note`` says; :func:`export_zarr` writes both triangles. The attribute ``tangentlab`` is the manifest: hashes
of weights and samples, what the network computes, readout, precision, tile plan, versions, provenance. A request for
another kernel is refused before anything is written.
"""

from tangentlab._deprecated import renamed_names
from tangentlab.store._behavior import Behavior
from tangentlab.store._compute import append, compute, create, repair
from tangentlab.store._estimate import Estimate, Probe, estimate, probe
from tangentlab.store._export import copy, export_npy, export_zarr, pack
from tangentlab.store._identity import Identity
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._manifest import Manifest, Segment
from tangentlab.store._status import Status, missing_shards, status
from tangentlab.store._verify import Verification
from tangentlab.store._workers import WorkerState

open = StoredKernel

__all__ = [
    "Behavior",
    "Estimate",
    "Identity",
    "Manifest",
    "Probe",
    "Segment",
    "Status",
    "StoredKernel",
    "Verification",
    "WorkerState",
    "append",
    "compute",
    "copy",
    "create",
    "estimate",
    "export_npy",
    "export_zarr",
    "missing_shards",
    "open",
    "pack",
    "probe",
    "repair",
    "status",
]

__getattr__ = renamed_names(__name__, {"unpack": "copy"})
