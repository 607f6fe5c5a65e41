"""Kernel regression as a stand-in for the network, fitted once for all test samples."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.attribution._checks import check_memory
from tangentlab.attribution._request import Request, Side
from tangentlab.kernels import ntk


@dataclass(frozen=True)
class Surrogate:
    r"""The kernel regression :math:`f(x) = K(x, X) A` with :math:`A = B Y`, :math:`B = (K + \rho)^{-1}`.

    One layout for both kernels: L functions per sample whose kernel is used, and C columns of targets. The pseudo-NTK
    has L = 1, and a column per class or number; the full kernel has L = O, and one column.

    Attributes:
        inverse: B, (N, L, N, L) float64.
        coefficients: A, (N, L, C).
        cross: K(x, X) of the test samples, (M, L, N, L).
        ridge: rho.
    """

    inverse: Tensor
    coefficients: Tensor
    cross: Tensor
    ridge: float

    @property
    def outputs(self) -> int:
        """O, the number of outputs of the regression."""
        return self.coefficients.shape[1] * self.coefficients.shape[2]

    def rows(self, matrix: Tensor, output: Tensor) -> Tensor:
        """Return the rows of (M, L, N, L) that belong to one output of each test sample, (M, N, L)."""
        if matrix.shape[1] == 1:
            return matrix[:, 0]
        return matrix[torch.arange(len(matrix)), output]

    def columns(self, per_sample: Tensor, output: Tensor) -> Tensor:
        """Return what (N, L, C) holds for one output of each test sample: (M or 1, N, L)."""
        if per_sample.shape[2] == 1:
            return per_sample[None, :, :, 0]
        return per_sample.permute(2, 0, 1)[output]

    def predict(self) -> Tensor:
        """Compute f of the test samples, (M, O)."""
        return torch.einsum("mlnk,nkc->mlc", self.cross, self.coefficients).flatten(1)


def fit(model: nn.Module, request: Request, readout: Any, ridge: float | str) -> Surrogate:
    """Fit the surrogate of one checkpoint: one eigendecomposition of the kernel, or a Cholesky factor.

    Args:
        model: The network.
        request: Samples and options.
        readout: ``"pntk"`` or ``"full"``.
        ridge: A number, or ``"loo"`` for the smallest leave-one-out error of the ridge path.
    """
    train, test = request.train, request.test
    rows = len(train) * (1 if readout == "pntk" else _outputs(model, request))
    check_memory(
        f"Kernel regression with {rows:,} rows needs",
        40 * rows**2,
        request.options.get("memory_budget"),
        "Use method='trak', fewer training samples, or readout='pntk'.",
    )
    doubled = request.with_options(dtype=torch.float64)
    kernel = ntk(model, train.data, **doubled.arguments(train, readout=readout)).cpu()
    cross = ntk(model, test.data, train.data, **doubled.arguments(test, train, readout=readout)).cpu()
    count, functions = len(train), kernel.shape[1] if kernel.ndim == 4 else 1
    targets = _one_hot(train, functions, model, request)
    matrix, right = kernel.reshape(count * functions, -1), targets.reshape(count * functions, -1)
    rho, inverse = _inverse(matrix, right, ridge)
    return Surrogate(
        inverse.view(count, functions, count, functions),
        (inverse @ right).view(count, functions, -1),
        cross.reshape(len(test), functions, count, functions),
        rho,
    )


def _inverse(kernel: Tensor, targets: Tensor, ridge: float | str) -> tuple[float, Tensor]:
    """Return rho and B = (K + rho)^-1: by a Cholesky factor, or by the eigenpairs that the choice of rho needs."""
    if ridge == "loo":
        spectrum = linalg.eigh(kernel, progress=False)
        rho = linalg.ridge_path(spectrum, targets).best
        return rho, (spectrum.vectors / (spectrum.values + rho)) @ spectrum.vectors.T
    rho = float(ridge)
    factor, failed = torch.linalg.cholesky_ex(kernel + rho * torch.eye(len(kernel), dtype=kernel.dtype))
    if int(failed):
        raise TangentError(
            f"The kernel of {len(kernel):,} rows with the ridge {rho:.3g} is singular.",
            "The other samples then do not determine a left-out one.",
            f"Pass ridge='loo', or a number such as {1e-6 * float(kernel.diagonal().mean()):.3g}.",
        )
    return rho, torch.cholesky_inverse(factor)


def check_ridge(ridge: Any) -> None:
    """Refuse what is neither a nonnegative number nor "loo"."""
    number = isinstance(ridge, int | float) and not isinstance(ridge, bool) and 0 <= ridge < float("inf")
    if ridge != "loo" and not number:
        raise TangentError(f"ridge={ridge!r}.", remedy='Pass a nonnegative number, or "loo" for cross-validation.')


def explained_output(test: Side, surrogate: Surrogate) -> Tensor | None:
    """Return the output of each test sample that is explained: its class, (M,); None for targets that are numbers.

    Raises:
        TangentError: There is no such class.
    """
    classes = test.columns
    if classes.is_floating_point():
        return None
    least, largest = int(classes.min()), int(classes.max())
    if least < 0 or largest >= surrogate.outputs:
        raise TangentError(
            f"The test targets hold the class {least if least < 0 else largest}.",
            f"The model has {surrogate.outputs} outputs, so classes are 0 to {surrogate.outputs - 1}.",
            "Number the classes from 0 on, as in training.",
        )
    return classes


def _one_hot(train: Side, functions: int, model: nn.Module, request: Request) -> Tensor:
    """Return the targets to learn, (N, O) float64: numbers as they are, one column per output for classes."""
    found = train.columns
    outputs = functions if functions > 1 else _outputs(model, request)
    if found.is_floating_point():
        if functions > 1 and found.shape[1] != functions:
            raise TangentError(
                f"The training targets have {found.shape[1]} columns, and the model {functions} outputs.",
                remedy="Pass one number per output, or readout='pntk'.",
            )
        return found
    least, largest = int(found.min()), int(found.max())
    if least < 0 or largest >= max(2, outputs):
        raise TangentError(
            f"The training targets hold the class {least if least < 0 else largest}.",
            f"The model has {outputs} outputs, so classes are 0 to {max(2, outputs) - 1}.",
            "Number the classes from 0 on, and leave out samples without a class.",
        )
    if outputs == 1:
        raise TangentError(
            "The targets are classes, and the model has one output.",
            "Kernel regression learns one column per output.",
            "Pass numbers, for instance 2.0 * targets - 1, for both train and test.",
        )
    return torch.nn.functional.one_hot(found, outputs).double()


def _outputs(model: nn.Module, request: Request) -> int:
    """Return the number of outputs of the network."""
    one = request.test.samples.batch(slice(0, 1))
    kept = {name: value for name, value in request.options.items() if name in ("parameters", "output", "device")}
    found = ntk(model, one.inputs, readout="full", diagonal=True, check=False, progress=False, **kept)
    return int(found.shape[1])
