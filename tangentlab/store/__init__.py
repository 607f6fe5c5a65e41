"""Kernels on disk: larger than memory, resumable, shared among processes, verified.

    >>> from tangentlab import store
    >>> kernel = store.compute(model, x, "kernel.zarr", memory_budget="4GiB")   # rerun to resume
    >>> kernel = store.open("kernel.zarr")
    >>> kernel.read(slice(0, 100), slice(500, 600)), kernel[7], kernel @ v, kernel.diagonal()
    >>> store.pack("kernel.zarr", "kernel.zarr.zip")                             # a single file to share

A store is a plain Zarr v3 array of shape (N R, N R). A chunk is a tile with a checksum. Only the tiles of the upper
triangle are stored; the others, and those not computed yet, read as NaN in other Zarr clients. The attribute
``tangentlab`` is the manifest: hashes of weights and samples, what the network computes, readout, precision, tile plan,
versions, provenance. A request for another kernel is refused before anything is written.
"""

from tangentlab.store._behavior import Behavior
from tangentlab.store._compute import append, compute, create, repair
from tangentlab.store._estimate import Estimate, Probe, estimate, probe
from tangentlab.store._export import export_npy, pack, unpack
from tangentlab.store._identity import Identity
from tangentlab.store._kernel import StoredKernel
from tangentlab.store._manifest import Manifest, Segment
from tangentlab.store._status import Status, WorkerState, missing_shards, status
from tangentlab.store._verify import Verification

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
    "create",
    "estimate",
    "export_npy",
    "missing_shards",
    "open",
    "pack",
    "probe",
    "repair",
    "status",
    "unpack",
]
