"""The result of attribution: scores of training samples for test samples."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab._files import write_bytes
from tangentlab._html import card
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_numpy
from tangentlab.attribution._checks import check_whole
from tangentlab.attribution._folders import open_folder, read_manifest

KIND = "attribution scores"
_FILE = "scores.npz"


class Top(NamedTuple):
    """Training samples with the most extreme scores, the most extreme first.

    Attributes:
        indices: Their numbers, (k,).
        scores: Their scores, (k,).
    """

    indices: Tensor
    scores: Tensor


@dataclass(frozen=True, eq=False)
class Attribution:
    """Scores of N training samples for M test samples. A positive score means that the training sample helps.

    Attributes:
        scores: (M, N).
        method: The method and its options, as plain values.
        checkpoints: The number of checkpoints that were combined.
        train_targets: Targets of the training samples, (N,), if they are one number each.
        test_targets: Those of the test samples, (M,).
    """

    scores: Tensor
    method: dict[str, Any]
    checkpoints: int = 1
    train_targets: Tensor | None = field(default=None, repr=False)
    test_targets: Tensor | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        tests, samples = self.scores.shape
        return (
            f"Attribution({self.method['name']!r}, {samples:,} training samples, {tests:,} test samples, "
            f"{self.checkpoints} checkpoint{'s' if self.checkpoints > 1 else ''})"
        )

    def _repr_html_(self) -> str:
        tests, samples = self.scores.shape
        facts = {**self.method, "checkpoints": self.checkpoints, "test samples": tests, "training samples": samples}
        few = self.to_pandas(3)
        return card("Attribution", facts, few.head(12).to_html(index=False, float_format="%.4g"))

    def top(self, test: int, k: int = 10, *, harmful: bool = False) -> Top:
        """Return the k most helpful training samples of a test sample, or the k most harmful.

        Args:
            test: The number of the test sample.
            k: How many.
            harmful: Whether to take the most negative scores instead of the largest.
        """
        tests, samples = self.scores.shape
        number, k = check_whole("test", test, -tests), check_whole("k", k, 1)
        if number >= tests:
            raise TangentError(f"There is no test sample {number}.", remedy=f"They are numbered 0 to {tests - 1}.")
        found = self.scores[number].topk(min(k, samples), largest=not harmful)
        return Top(found.indices, found.values)

    def to_pandas(self, k: int | None = None) -> pd.DataFrame:
        """Return a table with one row per test and training sample.

        Args:
            k: Only the k most helpful and the k most harmful of each test sample; None for all N.

        Returns:
            Columns ``test``, ``train``, ``score``, ``rank`` (0 is the most helpful, -1 the most harmful) and, where
            targets are known, ``test_target`` and ``train_target``.
        """
        tests, samples = self.scores.shape
        k = None if k is None else check_whole("k", k, 1)
        order = self.scores.argsort(dim=1, descending=True, stable=True)
        ranks = torch.arange(samples)
        if k is not None and 2 * k < samples:
            ranks = torch.cat([ranks[:k], ranks[-k:]])
        chosen = order[:, ranks]
        table = pd.DataFrame(
            {
                "test": torch.arange(tests).repeat_interleave(len(ranks)).numpy(),
                "train": chosen.flatten().numpy(),
                "score": self.scores.gather(1, chosen).flatten().numpy(),
                "rank": torch.where(ranks < samples / 2, ranks, ranks - samples).repeat(tests).numpy(),
            }
        )
        if self.test_targets is not None:
            table["test_target"] = self.test_targets.numpy()[table["test"]]
        if self.train_targets is not None:
            table["train_target"] = self.train_targets.numpy()[table["train"]]
        return table

    def picture(self, test: int, train_data: Any, test_data: Any, k: int = 4, names: Any = None) -> Any:
        """Draw a test sample next to its k most helpful and k most harmful training samples.

        Args:
            test: The number of the test sample.
            train_data: The training samples: images (N, C, H, W) or (N, H, W), a Dataset of images, or N texts.
            test_data: The test samples in the same form.
            k: How many of each kind.
            names: Names of the classes.

        Returns:
            A matplotlib figure.
        """
        from tangentlab.attribution._picture import draw

        return draw(self, test, train_data, test_data, k, names)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the scores with a checksum, and a manifest, to a folder; files appear complete or not at all.

        Raises:
            TangentError: The folder holds other scores, or cannot be written.
        """
        tests, samples = self.scores.shape
        facts = {"method": self.method, "checkpoints": self.checkpoints, "tests": tests, "samples": samples}
        place = open_folder(folder, KIND, facts)
        try:
            there: Attribution | None = Attribution.load(place)
        except TangentError:  # none, or damaged ones, which are written again
            there = None
        if there is not None and not torch.equal(there.scores, self.scores):
            raise TangentError(f"{place} holds other scores.", remedy="Choose another folder.")
        write_scores(place, self)
        return place

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Attribution":
        """Load what :meth:`save` wrote, or the ``out`` folder of a finished :func:`attribute`.

        Raises:
            TangentError: There are no scores, or they are damaged.
        """
        manifest = read_manifest(folder, KIND)
        path = Path(folder).expanduser() / _FILE
        try:
            content = load_numpy(path)
            assert isinstance(content, dict)
            scores = content["scores"]
            if scores.shape != (manifest["tests"], manifest["samples"]):
                raise Unreadable("does not fit its manifest")
            return cls(
                scores,
                dict(manifest["method"]),
                int(manifest["checkpoints"]),
                content.get("train_targets"),
                content.get("test_targets"),
            )
        except (Unreadable, KeyError, TypeError, ValueError) as error:
            why = error if isinstance(error, Unreadable) else "holds no scores"
            raise TangentError(
                f"{path} {why}.", remedy="Rerun the attribution with the same out= to finish or repair it."
            ) from error


def write_scores(place: Path, result: Attribution) -> None:
    """Write the scores and targets into an open folder."""
    arrays: dict[str, np.ndarray] = {"scores": result.scores.numpy()}
    for name in ("train_targets", "test_targets"):
        targets = getattr(result, name)
        if targets is not None:
            arrays[name] = targets.numpy()
    write_bytes(place / _FILE, lambda file: np.savez(file, **arrays))  # type: ignore[arg-type]
