"""Engines that execute tasks: kernel tiles, training runs, any plain callable that can be pickled.

    >>> from concurrent.futures import ProcessPoolExecutor
    >>> from tangentlab import engines, store
    >>> with ProcessPoolExecutor(4) as pool:
    ...     kernel = store.compute(model, x, "kernel.zarr", engine=engines.Executor(pool))
    >>> with engines.Dask("tcp://host:8786") as cluster:
    ...     kernel = store.compute(model, x, "kernel.zarr", engine=cluster)

:class:`InProcess` is the default; :class:`Shard` is one process of a job array, which :func:`slurm_script` and
:func:`slurm_submit` start; :meth:`Dask.on_slurm` starts Dask workers as jobs of Slurm; :func:`as_engine` converts what
a user passes.
"""

from tangentlab.engines._base import Engine, as_engine
from tangentlab.engines._dask import Dask
from tangentlab.engines._executor import Executor, process_pool
from tangentlab.engines._in_process import InProcess
from tangentlab.engines._resources import Resources
from tangentlab.engines._shard import Shard
from tangentlab.engines._slurm import array_of, require_slurm, slurm_queue, slurm_script, slurm_submit

__all__ = [
    "Dask",
    "Engine",
    "Executor",
    "InProcess",
    "Resources",
    "Shard",
    "array_of",
    "as_engine",
    "process_pool",
    "require_slurm",
    "slurm_queue",
    "slurm_script",
    "slurm_submit",
]
