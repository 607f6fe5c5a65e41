"""TRAK's scores of more training samples than fit into memory: ``python -m benchmarks.attribution.streaming FOLDER``.

Synthetic features, (N, k) float32, are written to a folder in blocks as :class:`tangentlab.attribution.Trak` writes
them, and the scores of M test samples are computed from there. Printed: seconds and the peak of the resident memory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from benchmarks import memory
from tangentlab.attribution._features import FeaturesOnDisk
from tangentlab.attribution._trak import trak_scores

BLOCK = 64 * 2**20


def main() -> None:
    """Write, score, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder for the features, 4 N k bytes")
    parser.add_argument("--samples", type=int, default=1_000_000, help="N")
    parser.add_argument("--features", type=int, default=2048, help="k")
    parser.add_argument("--tests", type=int, default=100, help="M")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    count, k = options.samples, options.features
    features = FeaturesOnDisk(options.folder, count, k, max(1, BLOCK // (4 * k)), {"synthetic": True})
    random = torch.Generator().manual_seed(0)
    begin = time.perf_counter()
    for rows in features.blocks:
        if rows not in features:
            features[rows] = torch.randn(len(rows), k, generator=random)
    written = time.perf_counter()
    test = torch.randn(options.tests, k, generator=random)
    memory.start_watch()
    scores = trak_scores(features, test, 1.0)
    seconds = time.perf_counter() - written
    print(
        f"N {count:,}, k {k:,}, M {options.tests}: features {4 * count * k / memory.GIB:.1f} GiB in "
        f"{written - begin:.0f} s, scores {tuple(scores.shape)} in {seconds:.0f} s, peak of the process "
        f"{memory.peak() / memory.GIB:.2f} GiB"
    )


if __name__ == "__main__":
    main()
