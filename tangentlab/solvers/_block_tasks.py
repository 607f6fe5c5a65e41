"""What a worker of a cluster does with one block of a kernel: NumPy in and out, which is sent without a copy."""

from functools import lru_cache

import numpy as np
import torch

from tangentlab._errors import TangentError
from tangentlab._sums import times_power
from tangentlab.store import StoredKernel

Block = np.ndarray
Place = tuple[slice, slice]


class NotPositive(Exception):
    """A corner without Cholesky factor: the row of the kernel at which it ends."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


@lru_cache(maxsize=4)
def _opened(path: str, key: str) -> StoredKernel:
    """Open a store once per worker, and make sure that it is the one that was asked for."""
    try:
        kernel = StoredKernel(path)
    except TangentError as error:
        raise TangentError(
            f"A worker of the cluster cannot read {path}: {error.what}",
            "Every worker reads its tiles from the store itself.",
            "Put the store where all machines see it under the same name: a common folder, or an object store.",
        ) from error
    if kernel.manifest.key != key:
        raise TangentError(
            f"{path} on a worker of the cluster is another kernel.",
            "Every worker reads its tiles from the store itself.",
            "Put the store where all machines see it under the same name: a common folder, or an object store.",
        )
    if not kernel.complete:
        raise TangentError(f"{path} on a worker of the cluster is not complete.", "", "Copy it again, or share it.")
    return kernel


def read(path: str, key: str, rows: slice, columns: slice) -> Block:
    """Read a block from the store, with the checks of every tile."""
    return _opened(path, key).read(rows, columns).numpy()


def multiply(blocks: list[Block] | tuple[str, str], places: list[Place], vectors: list[Block]) -> Block:
    """Multiply some blocks K_ij with v_j, and those off the diagonal transposed with v_i, and add all up; float64.

    Args:
        blocks: The blocks, or the path and the key of the store to read them from, one at a time.
        places: The rows and columns of each.
        vectors: v, (n, m), in pieces.
    """
    v = torch.from_numpy(np.concatenate(vectors))
    out = torch.zeros_like(v)
    for number, (rows, columns) in enumerate(places):
        block = blocks[number] if isinstance(blocks, list) else read(*blocks, rows, columns)
        values = torch.from_numpy(block).double()
        out[rows].addmm_(values, v[columns])
        if rows != columns:
            out[columns].addmm_(values.T, v[rows])
    return out.numpy()


def add(first: Block, second: Block) -> Block:
    """Add two parts of a product."""
    return first + second


def diagonal(block: Block) -> Block:
    """Read the diagonal of a block, float64."""
    return block.diagonal().astype(np.float64)


def prepare(block: Block, dtype: torch.dtype, exponent: int, ridge: float | None) -> Block:
    """Convert 2^-exponent K_ij to the precision of the factor; with a ridge, on the diagonal."""
    values = times_power(torch.from_numpy(block).to(torch.float64), -exponent).to(dtype, copy=True)
    if ridge is not None:
        values.diagonal().add_(ridge)
    return values.numpy()


def corner(block: Block, start: int) -> Block:
    """Compute U_kk with U_kk^T U_kk = A_kk.

    Raises:
        NotPositive: There is none.
    """
    factor, info = torch.linalg.cholesky_ex(torch.from_numpy(block))
    if int(info):
        raise NotPositive(start + int(info) - 1)
    return factor.T.contiguous().numpy()


def across(corner: Block, block: Block) -> Block:
    """Compute U_kj = U_kk^-T A_kj."""
    return torch.linalg.solve_triangular(torch.from_numpy(corner).T, torch.from_numpy(block), upper=False).numpy()


def update(block: Block, left: Block, right: Block) -> Block:
    """Compute A_ij - U_ki^T U_kj. Not in place: what a worker holds may be needed again if another one is lost."""
    a, b, c = (torch.from_numpy(part) for part in (block, left, right))
    return torch.addmm(a, b.T, c, alpha=-1).numpy()


def apply(block: Block, vectors: Block, transposed: bool) -> Block:
    """Multiply a block of the factor, or its transpose, with vectors."""
    values = torch.from_numpy(block)
    return ((values.T if transposed else values) @ torch.from_numpy(vectors)).numpy()


def substitute(corner: Block, right: Block, known: list[Block], transposed: bool) -> Block:
    """Solve U_ii x_i = b_i - sum of what is known, or the transposed system."""
    rest = torch.from_numpy(right.copy())
    for part in known:
        rest -= torch.from_numpy(part)
    values = torch.from_numpy(corner)
    return torch.linalg.solve_triangular(values.T if transposed else values, rest, upper=not transposed).numpy()
