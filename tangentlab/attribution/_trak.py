"""Attribution by TRAK: a linear model in sketched gradients of the margins."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab._progress import progress_bar
from tangentlab.attribution._checks import check_number, check_whole, room
from tangentlab.attribution._features import Features, FeaturesInMemory, FeaturesOnDisk
from tangentlab.attribution._folders import discarded_if_refused, network_hash
from tangentlab.attribution._method import Method, Part
from tangentlab.attribution._request import Request, Side
from tangentlab.kernels import sketch
from tangentlab.kernels.internal import Network
from tangentlab.store.internal import Digest

_MOST = 2048
"""Features per sample, unless the user or the size of the network says otherwise."""
_BLOCK_BYTES = 64 * 2**20
"""Size of a block of features."""
_SHARE = 0.25
"""The part of the memory budget that features in memory may take."""


@dataclass(frozen=True)
class Trak(Method):
    r"""TRAK (Park et al. 2023): influence in the linear model of the network's gradients, projected to k numbers.

    .. math:: \tau(x)_n = \Big( \frac1C \sum_c \phi_c(x)^T (\Phi_c^T \Phi_c + \lambda)^{-1} \phi_c(x_n) \Big)
        \Big( \frac1C \sum_c q_c(x_n) \Big), \qquad \phi_c(x) = S_c \nabla_\theta f(x; \theta_c)

    with the margin f = log p / (1 - p) of the correct class, random projections S_c, the training samples' features
    Phi_c (N, k) and the weights q = 1 - p, the derivative of the loss with respect to the margin.

    Attributes:
        k: Features per sample; None for 2,048, or fewer for a small network. More features are more accurate.
        ridge: lambda, in units of the mean eigenvalue tr(Phi^T Phi) / k. 0 is the formula as published, which needs
            more training samples than features and predicts retrained networks less well.
        readout: f: ``"margin"``, or any readout with one number per sample. Weights other than 1 are known for
            ``"margin"`` only.
        seed: Seed of the projections; checkpoint c uses ``seed + c``.
        features: A folder for the features of the training samples, (N, k) float32 per checkpoint. They are streamed
            from there and never in memory as a whole, a rerun resumes, and other test samples need only their own
            features. None keeps them in memory if they fit into a quarter of the memory budget, else in ``out``.

    Cost per checkpoint: one forward and one backward pass per sample, the sketch, N k^2 + k^3 / 3 + M N k operations.
    Memory: the (M, N) scores, k^2 and a few blocks of 64 MiB.
    """

    name: ClassVar[str] = "trak"
    k: int | None = None
    ridge: float = 1.0
    readout: Any = "margin"
    seed: int = 0
    features: Any = None

    def __post_init__(self) -> None:
        check_number("ridge", self.ridge, 0)
        check_whole("seed", self.seed, 0)
        if self.k is not None:
            check_whole("k", self.k, 1)

    def part(self, model: nn.Module, request: Request, number: int, scratch: Path | None) -> Part:
        """Compute the scores and weights of one checkpoint."""
        k = self.k or _default_k(model, request)
        seed = self.seed + number
        place = scratch if self.features is None else Path(self.features)
        train = self._training_features(model, request, k, seed, place)
        test = self._sketch(model, request, request.test, range(len(request.test)), k, seed)
        weights = None
        if self.readout == "margin":
            weights = torch.sigmoid(-request.values(model, request.train, self.readout))
        return Part(trak_scores(train, test, self.ridge, request.options.get("progress")), weights)

    def _training_features(self, model: nn.Module, request: Request, k: int, seed: int, place: Path | None) -> Features:
        """Compute the features of the training samples block by block, those that are not on disk already."""
        count, rows = len(request.train), max(1, _BLOCK_BYTES // (4 * k))
        found: Features
        folder: Path | None = None
        fits = 4 * count * k <= _SHARE * room(request.options.get("memory_budget"))
        if self.features is None and (place is None or fits):
            if not fits:
                raise TangentError(
                    f"The features of {count:,} training samples, {show_bytes(4 * count * k)}, do not fit into a "
                    "quarter of the memory budget.",
                    "There is no folder to keep them in.",
                    "Pass out=FOLDER, attribution.Trak(features=FOLDER), a smaller k, or a larger memory_budget.",
                )
            found = FeaturesInMemory(count, k, rows)
        else:
            assert place is not None
            identity = {
                "network": network_hash(model),
                "readout": Digest()(self.readout),
                "options": Digest()([request.options.get(name) for name in ("parameters", "output", "dtype")]),
                "seed": seed,
                "train": request.train.digest,
            }
            found = FeaturesOnDisk(place / f"features-{seed:03d}", count, k, rows, identity)
            folder = found.folder
        with discarded_if_refused(folder), progress_bar("Features", count, request.options.get("progress")) as tick:
            for block in found.blocks:
                if block not in found:
                    found[block] = self._sketch(model, request, request.train, block, k, seed)
                tick(len(block))
        return found

    def _sketch(self, model: nn.Module, request: Request, side: Side, rows: range, k: int, seed: int) -> Tensor:
        """Compute the features of some samples, (B, k) float32."""
        batch = side.samples.batch(slice(rows.start, rows.stop))
        named = request.arguments(side, readout=self.readout) | {"input": None, "progress": False}
        if "targets" in named:
            named["targets"] = batch.targets
        found = sketch(model, batch.inputs, k, seed=seed, **named)
        if found.readouts != 1:
            raise TangentError(
                f"The readout {self.readout!r} has {found.readouts} numbers per sample.",
                "A score explains one number of each test sample.",
                "Choose one with readout=INDEX, or a function that returns one number.",
            )
        return found.features.to("cpu", torch.float32)


def _default_k(model: nn.Module, request: Request) -> int:
    """Return the features per sample: at most half as many as there are parameters that count."""
    chosen = Network(model, "pntk", parameters=request.options.get("parameters")).parameters
    return min(_MOST, max(1, sum(p.numel() for p in chosen.values()) // 2))


def trak_scores(train: Features, test: Tensor, ridge: float, progress: bool | None = None) -> Tensor:
    r"""Compute :math:`\phi(x)^T (\Phi^T \Phi + \lambda)^{-1} \phi(x_n)` for features that stream from disk, (M, N).

    Args:
        train: Phi, (N, k), in blocks.
        test: phi(x) of the test samples, (M, k).
        ridge: lambda in units of tr(Phi^T Phi) / k.
        progress: Whether to show a progress bar.

    Products of single blocks are in single, their sum and the solution in double precision.
    """
    k = train.k
    with progress_bar("Scores", 2 * len(train), progress) as tick:
        gram = torch.zeros(k, k, dtype=torch.float64)
        for rows in train.blocks:
            block = train[rows]
            gram += block.T @ block
            tick(len(rows))
        mean = float(gram.diagonal().mean())
        if not 0 < mean < float("inf"):
            raise TangentError(
                "The gradients of all training samples are zero, or not finite.",
                remedy="Check the readout: it must depend on the parameters.",
            )
        gram.diagonal().add_(ridge * mean)
        factor, failed = torch.linalg.cholesky_ex(gram)
        if int(failed):
            raise TangentError(
                f"The {k} features of {len(train):,} training samples are linearly dependent.",
                "With ridge 0, TRAK needs more training samples than features.",
                "Pass a positive ridge, such as 1, or a smaller k.",
            )
        solved = torch.cholesky_solve(test.double().T, factor).T.float()
        scores = torch.empty(len(test), len(train))
        for rows in train.blocks:
            scores[:, rows.start : rows.stop] = solved @ train[rows].T
            tick(len(rows))
    return scores
