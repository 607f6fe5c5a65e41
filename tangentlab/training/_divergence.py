"""The error of a training run that diverges."""

from pathlib import Path
from typing import Any

from tangentlab._errors import TangentError


class DivergenceError(TangentError):
    """A training run whose loss, gradient or weights became infinite or NaN.

    Attributes:
        step: Updates made before it was noticed.
        checkpoint: The last good checkpoint, or None if there is none.
        history: The history until then, as a table.
    """

    def __init__(self, what: str, why: str, remedy: str, step: int, checkpoint: Path | None, history: Any) -> None:
        super().__init__(what, why, remedy)
        self.step, self.checkpoint, self.history = step, checkpoint, history

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the class with the three parts alone, and fail to cross a process boundary.
        return type(self), (self.what, self.why, self.remedy, self.step, self.checkpoint, self.history)
