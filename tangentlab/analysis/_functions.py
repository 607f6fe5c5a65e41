"""Functions by their values on the samples of a kernel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels import NTKOperator


@dataclass(frozen=True)
class Functions:
    """Values of m functions on the rows of a kernel.

    Attributes:
        values: (n, m), float64, with n = N R rows for N samples and R readouts.
        samples: N, over which expectations are taken.
        single: Whether the user gave one function, so that one number is returned.
    """

    values: Tensor
    samples: int
    single: bool

    def result(self, numbers: Tensor) -> Tensor:
        """(m,), or a number if there was one function."""
        return numbers[0] if self.single else numbers

    def mean_square(self) -> Tensor:
        """||f||_2^2 = E_x |f(x)|^2, (m,)."""
        return self.values.square().sum(0) / self.samples


def on_samples(kernel: Any, functions: Any) -> Functions:
    """Functions checked against a kernel source.

    Args:
        kernel: A kernel source of n = N R rows.
        functions: (n,) or (n, m), rows over samples, then readouts; or (N, R, m).

    Raises:
        TangentError: They do not fit the kernel, or hold NaN.
    """
    values = torch.as_tensor(functions).detach()
    shape = tuple(kernel.shape)
    rows = shape[0] * shape[1] if len(shape) == 4 else shape[0]
    samples = shape[0]
    if isinstance(kernel, NTKOperator):
        samples = kernel.samples
    single = values.ndim == 1
    if values.ndim == 3:
        samples = values.shape[0]
        values = values.flatten(0, 1)
    elif single:
        values = values[:, None]
    if values.ndim != 2 or values.shape[0] != rows or values.shape[1] == 0:
        raise TangentError(
            f"Functions of shape {tuple(torch.as_tensor(functions).shape)} do not fit a kernel of shape {shape}.",
            why=f"A function has a value for each of the kernel's {rows:,} rows.",
            remedy=f"Give ({rows},), ({rows}, m), or (samples, readouts, m).",
        )
    if values.is_complex():
        raise TangentError("The functions are complex.", remedy="Give real values.")
    values = values.to(torch.float64)
    if not bool(torch.isfinite(values).all()):
        raise TangentError("The functions hold NaN or infinite values.", remedy="Give finite values on every sample.")
    return Functions(values, samples, single)
