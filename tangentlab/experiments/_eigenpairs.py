"""Kernels and their spectra as units of work."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypedDict

import torch
from torch import Tensor

from tangentlab import linalg
from tangentlab.experiments._kernels import gram
from tangentlab.experiments._parts import Images, Rows, Weights, inputs
from tangentlab.experiments._work import UnitOfWork

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context


class EigenpairsOutcome(TypedDict):
    """Eigenvalues, eigenvectors and trace of a Gram matrix."""

    values: Tensor
    vectors: Tensor
    trace: float


class EigenvaluesOutcome(TypedDict):
    """Eigenvalues, and the size of the Gram matrix."""

    values: Tensor
    samples: int


@dataclass(frozen=True)
class Eigenpairs(UnitOfWork[EigenpairsOutcome]):
    """Leading eigenpairs of the Gram matrix of a network of one output.

    Attributes:
        weights: The network.
        images: The samples.
        rows: Which of them; ortiz2021 takes training rows followed by test rows.
        k: How many eigenpairs; None for all.
        count: Only the first so many rows.
        double: Whether the kernel is computed in float64.

    The result: ``values`` (k,) descending and ``vectors`` (n, k) of unit length, float64 values and float32 vectors;
    ``trace``.
    """

    stored_as: ClassVar[str] = "Spectrum"
    shown_as: ClassVar[str] = "kernel of {weights.model.name}"
    weights: Weights
    images: Images
    rows: Rows = "both"
    k: int | None = None
    count: int | None = None
    double: bool = False

    def compute(self, context: "Context") -> EigenpairsOutcome:
        """Compute the kernel, then its eigenpairs."""
        x = inputs(self.images.load(context), self.rows, self.count)
        dtype = torch.float64 if self.double else torch.float32
        network = self.weights.build(context, dtype)
        kernel = gram(self, context, network, x.to(context.device, dtype), 0)
        pairs = linalg.eigh(kernel, self.k, seed=self.weights.model.seed, progress=context.settings.progress)
        return {"values": pairs.values.cpu(), "vectors": pairs.vectors.cpu().float(), "trace": linalg.trace(kernel)}


@dataclass(frozen=True)
class Eigenvalues(UnitOfWork[EigenvaluesOutcome]):
    """The eigenvalues of a spectrum without its eigenvectors, which at full size are a file of 2.4 GB.

    The result: ``values`` (k,) descending, float64, and ``samples``, the size of the Gram matrix.
    """

    shown_as: ClassVar[str] = "eigenvalues of {spectrum.weights.model.name}"
    spectrum: Eigenpairs

    def compute(self, context: "Context") -> EigenvaluesOutcome:
        """Copy the eigenvalues."""
        pairs = context.get(self.spectrum)
        return {"values": pairs["values"], "samples": len(pairs["vectors"])}
