"""Random numbers that depend only on their purpose."""

import zlib
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from tangentlab._errors import TangentError


def check_seed(seed: Any) -> int:
    """Return a seed as an int, or refuse it.

    Raises:
        TangentError: It is not a whole number from 0 to 2^63 - 1, the seeds of PyTorch's generators.
    """
    if isinstance(seed, bool) or not isinstance(seed, Integral) or not 0 <= int(seed) < 2**63:
        raise TangentError(f"seed={seed!r} is not a whole number from 0 to 2^63 - 1.", "", "Use 0, for example.")
    return int(seed)


def generator(purpose: str, *numbers: int) -> torch.Generator:
    """Return a generator for one purpose, such as ``generator("shuffle", seed, epoch)``.

    Everything is mixed by NumPy's ``SeedSequence``, so that neighboring seeds and epochs share nothing, and no
    global generator is touched. The purpose keeps apart draws that happen to have the same numbers: without it the
    order of the first epoch would pick the very examples whose labels are random. (``SeedSequence`` alone also takes
    (1,) and (1, 0) for the same.)
    """
    if any(not isinstance(number, Real) or int(number) != number or number < 0 for number in numbers):
        raise TangentError(f"A seed of {numbers} is not possible.", remedy="Give seeds and epochs as 0, 1, 2, ...")
    entropy = [zlib.crc32(purpose.encode()), len(numbers), *(int(number) for number in numbers)]
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))
