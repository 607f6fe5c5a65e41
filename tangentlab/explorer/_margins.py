"""The network beside its linearization, sample by sample."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab.explorer._labels import Labels
from tangentlab.explorer._state import State


@dataclass(frozen=True, eq=False)
class Margins:
    """How clearly a network and its linearization decide for the label of each sample.

    Attributes:
        network: The output of the label's class minus the largest other one, (N,): positive where the prediction is
            right. The output itself for real targets.
        linear: The same of the linearization.
        differ: Whether the predicted classes differ, (N,); for real targets, whether the outputs are further apart than
            twice the median.
        kind: ``"moved"``, the linearization at the first checkpoint, moved to these weights; or ``"fitted"``, the
            leave-one-out regression with the kernel.
        right: How many samples both, only the network, only the linearization and neither predict; None for real
            targets.
        agreement: The share of samples with the same prediction; for real targets, the correlation of the outputs.
    """

    network: Tensor
    linear: Tensor
    differ: Tensor
    kind: str
    right: tuple[int, int, int, int] | None
    agreement: float

    def summary(self) -> dict[str, Any]:
        """Return the numbers about all samples."""
        return {"kind": self.kind, "right": self.right, "agreement": round(self.agreement, 6)}


def margins(state: State, labels: Labels | None) -> Margins | None:
    """Compare outputs with those of the linearization; None without a network, labels, or outputs that fit them."""
    if labels is None or state.outputs is None or state.outputs.loss is None:
        return None
    if state.linear is not None:
        kind, other = "moved", state.linear
    elif state.fit is not None:
        kind, other = "fitted", state.fit.predictions
    else:
        return None
    mine = state.outputs.values
    if labels.classes is None:
        one, two = mine[:, 0], other[:, 0]
        gap = (one - two).abs()
        both = torch.corrcoef(torch.stack([one, two]))[0, 1]
        return Margins(one, two, gap > 2 * gap.median(), kind, None, float(torch.nan_to_num(both)))
    first, second = _margin(mine, labels.classes), _margin(other, labels.classes)
    same = _decided(mine) == _decided(other)
    a, b = first > 0, second > 0
    right = tuple(int(x.sum()) for x in (a & b, a & ~b, ~a & b, ~a & ~b))
    return Margins(first, second, ~same, kind, (right[0], right[1], right[2], right[3]), float(same.double().mean()))


def _decided(values: Tensor) -> Tensor:
    return (values[:, 0] > 0).long() if values.shape[1] == 1 else values.argmax(1)


def _margin(values: Tensor, classes: Tensor) -> Tensor:
    if values.shape[1] == 1:
        return (2.0 * classes - 1) * values[:, 0]
    own = values.gather(1, classes[:, None])[:, 0]
    others = values.scatter(1, classes[:, None], -torch.inf).amax(1)
    return own - others
