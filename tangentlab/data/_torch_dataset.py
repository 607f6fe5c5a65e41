"""Any torch ``Dataset`` of (image, label) pairs, read into memory once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._seeds import generator
from tangentlab.data._examples import Examples
from tangentlab.data._image_data import ImageData, Provenance
from tangentlab.data._normalization import Normalization
from tangentlab.data._subset import split_off


def load_dataset(
    train: "Dataset[Any]",
    test: "Dataset[Any] | None",
    *,
    classes: Sequence[str] | None,
    test_fraction: float,
    seed: int,
    progress: bool | None,
) -> ImageData:
    """Load two map-style data sets, or one that is split at random.

    Images may be tensors (C, H, W) or (H, W), arrays or Pillow images (H, W, C). uint8 pixels are kept as
    such and normalized with the training split's statistics; floating-point images are taken as they are,
    because they are normalized already.
    """
    images, labels = _read(train, progress)
    if test is None:
        in_test = split_off(labels, test_fraction, generator("split", seed))
        test_images, test_labels = images[in_test], labels[in_test]
        images, labels = images[~in_test], labels[~in_test]
    else:
        test_images, test_labels = _read(test, progress)
        if test_images.shape[1:] != images.shape[1:] or test_images.dtype != images.dtype:
            raise TangentError(
                f"Training images are {images.dtype} {tuple(images.shape[1:])} and test images "
                f"{test_images.dtype} {tuple(test_images.shape[1:])}.",
                remedy="Give both splits the same transform.",
            )
    highest = int(torch.cat([labels, test_labels]).max())
    names = tuple(classes) if classes is not None else tuple(str(label) for label in range(highest + 1))
    if len(names) <= highest:
        raise TangentError(f"There are {len(names)} class names and a label {highest}.", remedy="Name every class.")
    normalization = Normalization.of(images) if images.dtype == torch.uint8 else None
    return ImageData(
        type(train).__name__,
        Examples(images, labels, normalization),
        Examples(test_images, test_labels, normalization),
        names,
        Provenance(f"the torch data set {type(train).__module__}.{type(train).__qualname__}"),
    )


def _read(dataset: "Dataset[Any]", progress: bool | None) -> tuple[Tensor, Tensor]:
    if not hasattr(dataset, "__len__"):
        raise TangentError(
            f"{type(dataset).__name__} has no length.",
            why="It is an iterable-style data set, which has no fixed rows to compare kernels on.",
            remedy="Give a map-style data set with __len__ and __getitem__.",
        )
    count = len(dataset)
    if count < 2:
        raise TangentError(f"{type(dataset).__name__} has {count} examples.", remedy="Give at least two.")
    images, labels = [], []
    with progress_bar(f"reading {type(dataset).__name__}", count, progress) as tick:
        for index in range(count):
            sample = dataset[index]
            if not isinstance(sample, tuple | list) or len(sample) != 2:
                raise TangentError(
                    f"Example {index} of {type(dataset).__name__} is not a pair (image, label).",
                    remedy="Wrap the data set so that it gives pairs.",
                )
            images.append(_image(sample[0], index))
            labels.append(_label(sample[1], index))
            tick()
    shapes = {tuple(image.shape) for image in images}
    if len(shapes) > 1:
        raise TangentError(
            f"Images have different shapes: {', '.join(map(str, sorted(shapes)[:3]))}.",
            remedy="Resize or crop them in the data set's transform.",
        )
    return torch.stack(images), torch.tensor(labels)


def _image(value: Any, index: int) -> Tensor:
    if isinstance(value, Tensor):
        image = value
    else:  # an array, or a Pillow image, which is one to numpy: channels last
        array = np.array(value)
        image = torch.from_numpy(array)
        image = image.permute(2, 0, 1) if image.ndim == 3 else image
    if image.ndim == 2:
        image = image[None]
    if image.ndim != 3 or not (image.dtype == torch.uint8 or image.is_floating_point()):
        raise TangentError(
            f"The image of example {index} is {image.dtype} {tuple(image.shape)}.",
            remedy="Give uint8 or floating-point images (C, H, W).",
        )
    return image


def _label(value: Any, index: int) -> int:
    try:
        label = int(value)
    except (TypeError, ValueError):
        label = -1
    if label < 0 or label != value:
        raise TangentError(f"The label of example {index} is {value!r}.", remedy="Give classes as integers from 0.")
    return label
