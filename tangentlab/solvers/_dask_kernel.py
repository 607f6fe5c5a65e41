"""A stored kernel whose linear algebra runs in a Dask cluster."""

import math
import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._memory import available, show_bytes
from tangentlab._progress import Ticker
from tangentlab.engines import Dask
from tangentlab.linalg import Source
from tangentlab.linalg.internal import spans
from tangentlab.solvers import _block_tasks as tasks
from tangentlab.solvers._dask_cholesky import DaskCholesky
from tangentlab.store import StoredKernel

_CPU = torch.device("cpu")
_LEAST, _MOST = 1024, 4096
"""Rows of a block: enough for fast matrix products, and few enough that several fit into a worker's memory."""
_PER_WORKER = 8
"""Rows of blocks per square root of the number of workers, so that all of them have work up to the end."""
_WHOLE = 1024
"""Kernels up to this size may be brought to this process."""
_KEPT = 0.5
"""The share of the workers' memory that a kernel may take."""


class DaskKernel(Source):
    """A stored kernel as a kernel source of :mod:`tangentlab.linalg` whose entries stay in a Dask cluster.

    Its products and its Cholesky factor are computed by the workers, in blocks of whole tiles, which they read from the
    store themselves and check as :class:`tangentlab.store.StoredKernel` does. This process holds vectors alone: n times
    a few numbers. Products are in float64 for kernels of every precision::

        with engines.Dask("tcp://host:8786") as cluster:
            kernel = solvers.DaskKernel("s3://bucket/kernel.zarr", cluster)
            fit = linalg.regress(kernel, y, ridge=1e-3)  # Cholesky by all workers
            fit = linalg.regress(kernel, y, ridge=1e-3, method="cg")  # for a factor that no memory holds
            spectrum = linalg.eigh(kernel, 100)

    Cost with n rows: a product with m vectors is 2 n^2 m operations, in which every worker gets and returns 8 n m
    bytes; the factor takes n^3 / 3 operations and 4 n^2 bytes in all, and every worker gets up to 4 n^2 bytes on the
    way.

    Args:
        kernel: A complete store: an open one, its folder or its address. All workers must see it under this name.
        engine: The cluster.
        samples: The number of samples to use, the first ones: the training samples of a store that also has the test
            samples. None for all.
        keep: Whether workers keep their blocks in memory, or read them anew for every product. None keeps them if they
            take at most half of the workers' free memory.

    Raises:
        TangentError: It is not a store, or not complete, or has fewer samples.
    """

    remote = True

    def __init__(
        self,
        kernel: StoredKernel | str | os.PathLike[str],
        engine: Dask,
        *,
        samples: int | None = None,
        keep: bool | None = None,
    ) -> None:
        if not isinstance(engine, Dask):
            raise TangentError(
                f"The engine is a {type(engine).__name__}.",
                "The blocks of the kernel stay in the memory of workers, which only a Dask cluster has.",
                "Pass engines.Dask(...), with a number of processes, the address of a scheduler or a Dask cluster.",
            )
        stored = _stored(kernel)
        plan, own = stored.plan, stored.plan.samples if samples is None else samples
        if not isinstance(own, int) or isinstance(own, bool) or not 1 <= own <= plan.samples:
            raise TangentError(f"There are no {own!r} samples in {stored.path}.", "", f"Pass 1 to {plan.samples:,}.")
        outputs = plan.readouts if plan.readouts > 1 else None
        super().__init__(own * plan.readouts, torch.float64, _CPU, outputs, stored.dtype)
        path = stored.path
        self.engine, self.stored = engine, stored
        self._path = str(path.resolve()) if isinstance(path, Path) else path
        self._workers = engine.addresses
        self.tile = block_rows(self.n, stored.tile, len(self._workers))
        self.rows = list(spans(self.n, self.tile))
        self._upper = [(i, j) for i in range(len(self.rows)) for j in range(i, len(self.rows))]
        self._kept: dict[tuple[int, int], Any] = {}
        size = self.n * (self.n + self.tile) // 2 * stored.dtype.itemsize
        self.keep = size <= _KEPT * self.room() if keep is None else bool(keep)

    @property
    def shape(self) -> tuple[int, int]:
        """The shape (n, n)."""
        return self.n, self.n

    def room(self) -> int:
        """Return the free memory of all workers' machines, as far as Dask lets them use it."""
        info = self.engine.client.scheduler_info(n_workers=-1)["workers"]
        machines: dict[str, list[tuple[int, int]]] = {}
        asked = [self.engine.submit(_free, worker=worker) for worker in info]
        for (host, free), about in zip(self.engine.gather(asked), info.values(), strict=True):
            machines.setdefault(host, []).append((free, about.get("memory_limit") or 0))
        total = 0
        for workers in machines.values():
            limits = [limit for _, limit in workers]
            free = min(free for free, _ in workers)
            total += min(free, sum(limits)) if all(limits) else free
        return total

    def _owner(self, i: int, j: int) -> str:
        """Return the worker of a block: workers form a grid, to which rows and columns are dealt out in turn."""
        count = len(self._workers)
        down = next(size for size in range(math.isqrt(count), 0, -1) if count % size == 0)
        return self._workers[_turn(i, down) * (count // down) + _turn(j, count // down)]

    def _read(self, i: int, j: int) -> Any:
        """Return a block of the upper triangle: in the memory of its worker, or to be read when it is needed."""
        if (i, j) in self._kept:
            return self._kept[i, j]
        where = self._path, self.stored.manifest.key, self.rows[i], self.rows[j]
        found = self.engine.submit(tasks.read, *where, worker=self._owner(i, j))
        if self.keep:
            self._kept[i, j] = found
        return found

    def product(self, block: Tensor) -> Tensor:
        values = block.detach().to(device=_CPU, dtype=torch.float64).numpy()
        vectors = self.engine.send([np.ascontiguousarray(values[rows]) for rows in self.rows])
        shares: dict[Any, list[tuple[int, int]]] = {}
        for number, (i, j) in enumerate(self._upper):
            shares.setdefault(self._owner(i, j) if self.keep else number % (4 * len(self._workers)), []).append((i, j))
        parts = []  # every worker adds up the products of its own blocks, and pairs of them add up these sums
        for owner, share in shares.items():
            blocks = [self._read(i, j) for i, j in share] if self.keep else (self._path, self.stored.manifest.key)
            places = [(self.rows[i], self.rows[j]) for i, j in share]
            worker = owner if self.keep else None
            parts.append(self.engine.submit(tasks.multiply, blocks, places, vectors, worker=worker))
        while len(parts) > 1:
            pairs = [self.engine.submit(tasks.add, *parts[k : k + 2]) for k in range(0, len(parts) - 1, 2)]
            parts = pairs + parts[2 * len(pairs) :]
        return self._checked(torch.from_numpy(np.array(self.engine.gather(parts)[0])))

    def diagonal(self) -> Tensor:
        parts = [self.engine.submit(tasks.diagonal, self._read(i, i)) for i in range(len(self.rows))]
        return torch.from_numpy(np.concatenate(self.engine.gather(parts)))

    def factorize(self, ridge: float, dtype: torch.dtype, tick: Ticker, exponent: int = 0) -> DaskCholesky:
        """Compute the Cholesky factor of 2^-exponent K + ridge in the cluster.

        Raises:
            TangentError: It does not fit into the workers' memory.
        """
        need, room = dtype.itemsize * self.n * (self.n + self.tile) // 2, self.room()
        if need > room:
            raise TangentError(
                f"The Cholesky factor of {self.n:,} points in {dtype} takes {show_bytes(need)}; the workers of the "
                f"cluster have {show_bytes(room)} free.",
                "One triangle of the matrix must fit into their memory.",
                'Start more workers, use method="mixed" (half of that), or method="cg", which needs no factor.',
            )
        blocks = {}
        for i, j in self._upper:
            given = self._read(i, j), dtype, exponent, ridge if i == j else None
            blocks[i, j] = self.engine.submit(tasks.prepare, *given, priority=-i, worker=self._owner(i, j))
        return DaskCholesky(self.engine, blocks, self.rows, dtype, self._owner, tick)

    def dense(self) -> Tensor:
        if self.n > _WHOLE:
            raise TangentError(
                f"The kernel of {self.n:,} rows in the cluster is not brought to this process.",
                "All its eigenpairs, or more than a quarter of them, are computed from the whole matrix.",
                f"Ask for at most {self.n // 4:,} eigenpairs, use another method, or pass the stored kernel itself to "
                "compute on this machine.",
            )
        out = torch.empty(self.n, self.n, dtype=torch.float64)
        blocks = self.engine.gather([self._read(i, j) for i, j in self._upper])
        for (i, j), values in zip(self._upper, blocks, strict=True):
            block = torch.from_numpy(values).double()
            out[self.rows[i], self.rows[j]] = block
            out[self.rows[j], self.rows[i]] = block.T
        return out

    def __repr__(self) -> str:
        where = "kept by the workers" if self.keep else "read for every product"
        return f"DaskKernel({self._path!r}, shape={self.shape}, blocks of {self.tile:,} rows, {where})"


def _stored(kernel: StoredKernel | str | os.PathLike[str]) -> StoredKernel:
    stored = StoredKernel(kernel) if isinstance(kernel, str | os.PathLike) else kernel
    if not isinstance(stored, StoredKernel):
        raise TangentError(
            f"The kernel is a {type(stored).__name__}.",
            "Workers read their blocks from a store.",
            "Pass a stored kernel, its folder or its address; linalg takes a kernel in memory as it is.",
        )
    if str(stored.path).startswith("memory://"):
        raise TangentError(
            f"{stored.path} is in the memory of this process.",
            "Workers of a cluster do not see it.",
            "Copy it with store.copy to a folder or an object store.",
        )
    if not stored.complete:
        raise TangentError(
            f"{stored.path} is not complete: {stored.progress:.1%} of the kernel is computed.",
            "Linear algebra needs all of it.",
            "Resume with the same call of store.compute, or with 'tangentlab kernel resume'.",
        )
    return stored


def block_rows(n: int, tile: int, workers: int) -> int:
    """Choose the rows of a block: one tile, or several small ones."""
    wanted = min(_MOST, max(_LEAST, math.ceil(n / (_PER_WORKER * math.sqrt(workers)))))
    return tile * max(1, wanted // tile)


def _turn(index: int, count: int) -> int:
    """Return whose turn it is, 0, 1, 2, 2, 1, 0, 0, ...: later rows and columns take longer, and all get some."""
    place = index % (2 * count)
    return min(place, 2 * count - 1 - place)


def _free() -> tuple[str, int]:
    """Return the name of this machine and its free memory."""
    return socket.gethostname(), available(_CPU)
