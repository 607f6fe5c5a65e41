"""A computation for a process of its own, to be killed or to compete with others."""

from pathlib import Path

import torch

from tangentlab.store import StoredKernel, _writer, compute
from tests.store.problems import images, network

TILE, SAMPLES = 24, 400


def work(path: Path, log: Path | None = None, budget: str | None = None) -> StoredKernel:
    """The same kernel every time: 153 tiles.

    Args:
        path: The store.
        log: Where this process notes every tile that it writes.
        budget: Of memory.
    """
    torch.set_num_threads(1)
    if log is not None:
        write = _writer.write_tile

        def noted(array, tile, values):  # type: ignore[no-untyped-def]
            with open(log, "a") as file:
                file.write(f"{tile[0]}/{tile[1]}\n")
            write(array, tile, values)

        _writer.write_tile = noted
    return compute(network(), images(SAMPLES), path, tile=TILE, batch_size=TILE, memory_budget=budget, progress=False)
