"""The memory budget of a computation, and how many samples it allows at a time."""

from dataclasses import dataclass

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes

_WORKSPACE = 64 * 1024**2
"""Bytes of a batch beyond which larger batches are no faster."""
_FEW = 8
"""Samples up to which larger batches are faster anyway."""
_LARGEST_BATCH = 4096


@dataclass(frozen=True)
class Budget:
    """Memory for a computation, everything beyond the model and the inputs included.

    Attributes:
        total: Bytes.
        result: Bytes that the result takes.
        sample: Bytes that the factors of one sample take.
        batch_sample: Bytes that one more sample in a batch takes while its factors are made.
        tile: Bytes that contracting a tile takes.
        check: Bytes that comparing with plain differentiation takes, at another time than batches and tiles.
        batch_size: Samples per batch, if the user chose it.
    """

    total: int
    result: int
    sample: int
    batch_sample: int
    tile: int
    check: int
    batch_size: int | None = None

    @property
    def batch(self) -> int:
        """The number of samples per batch."""
        return batch_of(self.total - self.result - self.tile, self.batch_sample, self.batch_size)

    @property
    def resident(self) -> int:
        """The number of samples whose factors fit at a time.

        Raises:
            TangentError: Not even two samples fit.
        """
        working = max(self.tile + self.batch * self.batch_sample, self.check)
        fits = (self.total - self.result - working) // max(1, self.sample)
        if fits < 2:
            least = self.result + working + 2 * self.sample
            raise TangentError(
                f"The memory budget of {show_bytes(self.total)} is too small for one tile.",
                f"The result takes {show_bytes(self.result)}, the factors of a sample {show_bytes(self.sample)}, a "
                f"batch of {self.batch} {show_bytes(self.batch * self.batch_sample)}, a tile {show_bytes(self.tile)}, "
                f"the check {show_bytes(self.check)}.",
                f"Pass memory_budget of at least {show_bytes(int(least * 1.05) + 1)}, fewer samples, a smaller "
                'batch_size, or a readout with fewer outputs such as "pntk".',
            )
        return int(fits)


def batch_of(room: int, per_sample: int, batch_size: int | None = None) -> int:
    """Return the number of samples per batch, if ``room`` bytes are free and one sample takes ``per_sample``.

    Args:
        room: Bytes.
        per_sample: Bytes.
        batch_size: What the user chose.
    """
    if batch_size is not None:
        return batch_size
    wanted = max(_WORKSPACE, _FEW * per_sample)
    return int(max(1, min(_LARGEST_BATCH, min(wanted, max(0, room) // 3) // max(1, per_sample))))
