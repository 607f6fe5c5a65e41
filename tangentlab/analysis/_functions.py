"""Functions given by their values on the samples of a kernel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._scaling import columns_to_unit, restored
from tangentlab.linalg import Spectrum, as_source
from tangentlab.linalg.internal import as_targets


@dataclass(frozen=True)
class Functions:
    """Values of m functions on the rows of a kernel, each at unit size.

    Attributes:
        values: (n, m), float64, with n = N R rows for N samples and R readouts; 2^-exponents times the user's.
        exponents: The exponents, (m).
        samples: The number of samples N in expectations.
        single: Whether the user gave one function, so that one number is returned.
    """

    values: Tensor
    exponents: list[int]
    samples: int
    single: bool

    def result(self, numbers: Tensor, what: str, power: int = 0, exponent: int = 0) -> Tensor:
        """Return (m,), or a number if there was one function, at the user's scale.

        Args:
            numbers: (m,), for functions at unit size.
            what: Their name in a refusal.
            power: The power of the function with which they scale.
            exponent: The power of two by which they scale with the kernel.
        """
        endless = torch.isinf(numbers)  # a norm may be infinite, for a function outside the space
        finite = torch.where(endless, 0.0, numbers)
        finite = restored(finite, [power * e + exponent for e in self.exponents], what)
        numbers = torch.where(endless, numbers, finite)
        return numbers[0] if self.single else numbers

    def mean_square(self) -> Tensor:
        """Compute ||f||_2^2 = E_x |f(x)|^2, (m,), at unit size."""
        return self.values.square().sum(0) / self.samples


def on_samples(kernel: Any, functions: Any) -> Functions:
    """Check functions against a kernel; what they may be is in :mod:`tangentlab.linalg._targets`.

    Args:
        kernel: A kernel source of n = N R rows, or its spectrum.
        functions: (n,) or (n, m), rows over samples, then readouts; (N, R) for one function, (N, R, m) for several.

    Raises:
        TangentError: They do not fit the kernel, hold NaN, or look like class numbers.
    """
    if isinstance(kernel, Spectrum):
        rows, outputs, device = kernel.n, None, kernel.vectors.device
    else:
        source = as_source(kernel)
        rows, outputs, device = source.n, source.outputs, source.device
    given = as_targets(rows, outputs, functions, "functions", device)
    values, exponents = columns_to_unit(given.columns)
    return Functions(values, exponents, given.samples, given.single)
