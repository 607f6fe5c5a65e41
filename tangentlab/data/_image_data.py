"""A data set: two splits, the names of the classes, and its origin."""

from dataclasses import dataclass, replace

import torch

from tangentlab._deprecated import warn
from tangentlab._errors import TangentError
from tangentlab.data._examples import Examples
from tangentlab.data._normalization import Normalization


@dataclass(frozen=True)
class SourceFile:
    """A file that was read.

    Attributes:
        path: Its path.
        md5: MD5 of its content; of the uncompressed content if it is compressed.
        published: The MD5 that its publisher states for that content, None where there is none.
    """

    path: str
    md5: str
    published: str | None = None


@dataclass(frozen=True)
class Provenance:
    """The origin of a data set, for the record next to a result.

    Attributes:
        source: A sentence about the origin.
        files: The files that were read.
    """

    source: str
    files: tuple[SourceFile, ...] = ()

    @property
    def original(self) -> bool | None:
        """Whether every file is identical to its publisher's; None if there is nothing to compare with.

        False does not say what is different: a re-encoded copy, another order, or other images.
        """
        if not self.files or any(file.published is None for file in self.files):
            return None
        return all(file.md5 == file.published for file in self.files)


@dataclass(frozen=True, eq=False, repr=False)
class ImageData:
    """Two splits of labeled images. :func:`tangentlab.data.load` returns it, and every task takes and returns it.

    Attributes:
        name: Name of the data set, or of the task made from it.
        train: The training split.
        test: The test split.
        classes: Names, in the order of the labels.
        provenance: Its origin.
    """

    name: str
    train: Examples
    test: Examples
    classes: tuple[str, ...]
    provenance: Provenance

    def __repr__(self) -> str:
        return f"ImageData({self.name!r}, train={self.train!r}, test={self.test!r}, {len(self.classes)} classes)"

    @property
    def normalization(self) -> Normalization | None:
        """The normalization of both splits."""
        return self.train.normalization

    @property
    def normalisation(self) -> Normalization | None:
        """The former name of :attr:`normalization`."""
        warn("ImageData.normalisation", "ImageData.normalization")
        return self.normalization

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an input."""
        return self.train.input_shape

    def subset(self, n_train: int | None = None, n_test: int | None = None, seed: int = 0) -> "ImageData":
        """Draw stratified, seeded subsets of the splits; None keeps a split unchanged.

        The normalization stays that of the whole training split, as in ortiz2021 (code), which normalizes
        first.
        """
        return replace(
            self,
            train=self.train if n_train is None else self.train.subset(n_train, seed),
            test=self.test if n_test is None else self.test.subset(n_test, seed),
        )

    def pad_to(self, size: int) -> "ImageData":
        """Center both splits on a black square of side ``size``."""
        return replace(self, train=self.train.pad_to(size), test=self.test.pad_to(size))

    def both(self) -> Examples:
        """Concatenate training rows and test rows: the order of the Gram matrix of ortiz2021. Copies the images.

        Raises:
            TangentError: For shifted examples, whose shifts belong to their split.
        """
        train, test = self.train, self.test
        if train.transform is not None or test.transform is not None:
            raise TangentError(
                f"{self.name!r} is shifted, split by split.",
                remedy="Concatenate train.inputs() and test.inputs() instead.",
            )
        return Examples(
            torch.cat([train.images, test.images]),
            torch.cat([train.labels, test.labels]),
            train.normalization,
            torch.cat([train.targets, test.targets]),
        )

    def describe(self) -> str:
        """Return a paragraph with sizes, statistics and provenance."""
        channels, height, width = self.input_shape
        lines = [
            f"{self.name}: {len(self.train):,} training and {len(self.test):,} test images, "
            f"{channels} x {height} x {width}, {len(self.classes)} classes",
            f"source: {self.provenance.source}",
        ]
        if self.normalization is not None:
            mean, std = (
                ", ".join(f"{value:.4f}" for value in values)
                for values in (self.normalization.mean, self.normalization.std)
            )
            lines.insert(1, f"normalized with mean ({mean}) and standard deviation ({std})")
        original = self.provenance.original
        if original is not None:
            lines.append(
                "files: the publisher's, bit for bit"
                if original
                else "files: not the publisher's (their MD5 sums differ); say so beside a result"
            )
        return "\n".join(lines)
