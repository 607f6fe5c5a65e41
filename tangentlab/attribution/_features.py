"""Features of training samples in blocks: in memory, or on disk where they are larger."""

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab._files import write_bytes
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_numpy
from tangentlab.attribution._folders import open_folder


class Features(ABC):
    """Features Phi of N samples, (N, k) float32, in blocks of consecutive rows.

    Attributes:
        k: Features per sample.
        blocks: The rows of each block.
    """

    def __init__(self, count: int, k: int, rows: int) -> None:
        self._count, self.k = count, k
        self.blocks = [range(start, min(start + rows, count)) for start in range(0, count, rows)]

    def __len__(self) -> int:
        return self._count

    @abstractmethod
    def __contains__(self, rows: range) -> bool: ...

    @abstractmethod
    def __getitem__(self, rows: range) -> Tensor: ...

    @abstractmethod
    def __setitem__(self, rows: range, block: Tensor) -> None: ...


class FeaturesInMemory(Features):
    """Features in memory."""

    def __init__(self, count: int, k: int, rows: int) -> None:
        super().__init__(count, k, rows)
        self._kept: dict[range, Tensor] = {}

    def __contains__(self, rows: range) -> bool:
        return rows in self._kept

    def __getitem__(self, rows: range) -> Tensor:
        return self._kept[rows]

    def __setitem__(self, rows: range, block: Tensor) -> None:
        self._kept[rows] = block


class FeaturesOnDisk(Features):
    """Features in a folder, one file with a checksum per block, each written completely or not at all.

    Args:
        folder: The folder. Its manifest is compared: features of other samples or weights are refused.
        count: N.
        k: Features per sample.
        rows: Samples in a block.
        identity: Plain values that say which features these are.
    """

    def __init__(
        self, folder: str | os.PathLike[str], count: int, k: int, rows: int, identity: Mapping[str, Any]
    ) -> None:
        super().__init__(count, k, rows)
        self.folder: Path = open_folder(folder, "features", {"samples": count, "k": k, "rows": rows, **identity})

    def _path(self, rows: range) -> Path:
        return self.folder / f"rows-{rows.start:010d}.npz"

    def __contains__(self, rows: range) -> bool:
        """Return whether a block is there; a file that is damaged is renamed with a warning and computed again."""
        path = self._path(rows)
        if not path.exists():
            return False
        try:
            self._read(rows)
        except Unreadable as error:
            warnings.warn(f"{path} {error}. It is computed again.", stacklevel=3)
            os.replace(path, path.with_suffix(".npz.damaged"))
            return False
        return True

    def _read(self, rows: range) -> Tensor:
        content = load_numpy(self._path(rows))
        block = content.get("features") if isinstance(content, dict) else None
        if block is None or block.shape != (len(rows), self.k) or block.dtype != torch.float32:
            raise Unreadable("does not hold the features of these samples")
        return block

    def __getitem__(self, rows: range) -> Tensor:
        return self._read(rows)

    def __setitem__(self, rows: range, block: Tensor) -> None:
        write_bytes(self._path(rows), lambda file: np.savez(file, features=block.numpy()))
