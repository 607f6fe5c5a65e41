"""Labels of the samples, and the targets that the kernel is measured by."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known about N samples besides their inputs.

    Attributes:
        classes: Class indices, (N,) int64; None for real targets.
        names: Names of the C classes; empty for real targets.
        targets: What regression fits and energies are of, (N, C) float64: one-hot vectors minus 1 / C for classes,
            which makes a constant prior of 1 / C; else the real targets.
    """

    classes: Tensor | None
    names: tuple[str, ...]
    targets: Tensor

    @property
    def prior(self) -> float:
        """The constant that a prediction starts from: 1 / C for classes, else 0."""
        return 1 / len(self.names) if self.names else 0.0

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self.targets)


def make_labels(labels: Any, names: Sequence[Any] | None, count: int) -> Labels | None:
    """Check labels: class indices, or real targets (N,) or (N, L); None where there are none.

    Raises:
        TangentError: They are not one per sample, are not finite, or have fewer names than classes.
    """
    if labels is None:
        return None
    y = torch.as_tensor(labels).detach().cpu()
    if y.ndim not in (1, 2) or len(y) != count:
        raise TangentError(
            f"The labels have the shape {tuple(y.shape)}, and there are {count:,} samples.",
            remedy="Pass class indices (N,), or real targets (N,) or (N, L).",
        )
    if y.is_floating_point():
        if not bool(torch.isfinite(y).all()):
            raise TangentError("The labels hold NaN or infinite values.", remedy="Leave these samples out.")
        return Labels(None, (), y.double().reshape(count, -1))
    y = y.long().reshape(count, -1)
    if y.shape[1] != 1 or int(y.min()) < 0 or int(y.max()) >= 1000:
        raise TangentError(
            "The labels are integers, but not class indices from 0 to 999.",
            remedy="Number the classes from 0 on; pass real targets as floating point.",
        )
    classes = y[:, 0]
    found = tuple(str(name) for name in names) if names is not None else tuple(map(str, range(int(classes.max()) + 1)))
    if len(found) <= int(classes.max()):
        raise TangentError(
            f"There are names of {len(found)} classes, and a label {int(classes.max())}.",
            remedy="Pass one name per class, in the order of the class indices.",
        )
    one_hot = torch.nn.functional.one_hot(classes, len(found)).double()
    return Labels(classes, found, one_hot - 1 / len(found))
