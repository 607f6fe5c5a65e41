"""The errors of a regression as functions of its ridge."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class RidgeErrors:
    """What a regression that was fitted for G ridges says of each of them.

    Attributes:
        ridges: rho, (G,), ascending.
        leave_one_out: The exact mean squared error on samples that are left out, over all samples and columns, (G,).
        gcv: The generalized cross-validation score, (G,).
        train: The mean squared error on the training samples, (G,).
        degrees: The effective degrees of freedom, (G,).
        norms: The distance that the weights move, (G,).
    """

    ridges: Tensor
    leave_one_out: Tensor
    gcv: Tensor
    train: Tensor
    degrees: Tensor
    norms: Tensor

    @property
    def best(self) -> float:
        """The ridge with the smallest leave-one-out error."""
        return float(self.ridges[int(self.leave_one_out.argmin())])

    @property
    def best_by_gcv(self) -> float:
        """The ridge with the smallest generalized cross-validation."""
        return float(self.ridges[int(self.gcv.argmin())])

    @property
    def table(self) -> Any:
        """A DataFrame with one row per ridge."""
        import pandas as pd

        columns = {
            "ridge": self.ridges,
            "leave_one_out": self.leave_one_out,
            "gcv": self.gcv,
            "train": self.train,
            "degrees": self.degrees,
            "norm": self.norms,
        }
        return pd.DataFrame({name: values.cpu().numpy() for name, values in columns.items()})
