"""Pictures of attributions: images side by side, or texts with their scores."""

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from tangentlab._errors import TangentError
from tangentlab._extras import require

if TYPE_CHECKING:
    from tangentlab.attribution._result import Attribution

_IMAGES = ("pixel_values", "image", "img")
"""Names of the image in an item of a data set that is a dictionary."""
_WIDTH = 88
"""Characters of a line of text."""


def draw(result: "Attribution", test: int, train_data: Any, test_data: Any, k: int, names: Any) -> Any:
    """Draw a test sample beside its most helpful and most harmful training samples; see ``Attribution.picture``."""
    best, worst = result.top(test, k), result.top(test, k, harmful=True)
    check_shown(result, train_data, test_data)
    train, tests = as_texts(train_data), as_texts(test_data)
    if (train is None) != (tests is None):
        raise TangentError(
            f"{'test_data' if train is None else 'train_data'} holds texts, and the other does not.",
            remedy="Pass both as texts, or both as images.",
        )
    if train is not None:
        return _texts(result, test, train, tests, best, worst, names)
    return _images(result, test, train_data, test_data, best, worst, names)


def check_shown(result: "Attribution", train_data: Any, test_data: Any) -> None:
    """Refuse samples that are not as many as the scores are of.

    Raises:
        TangentError: They are not.
    """
    tests, samples = result.scores.shape
    for what, data, count in (("training", train_data, samples), ("test", test_data, tests)):
        if not hasattr(data, "__len__") or isinstance(data, str | Mapping) or len(data) != count:
            size = f"{len(data):,}" if hasattr(data, "__len__") else f"an object of type {type(data).__name__}"
            raise TangentError(
                f"The {what} samples to show are {size}, and the scores are of {count:,}.",
                remedy="Pass the samples that were attributed, or their texts.",
            )


def as_texts(data: Any) -> list[str] | None:
    """Return samples that are texts as a list: of a list, an array or a column of a table; None for anything else."""
    if isinstance(data, Tensor | Dataset | Mapping) or not isinstance(data, Iterable):
        return None
    return list(map(str, data)) if isinstance(next(iter(data), None), str) else None


def image_of(data: Any, index: int) -> Tensor:
    """Return one image as (H, W) or (H, W, 3), with values from 0 to 1.

    Raises:
        TangentError: The sample is not an image.
    """
    pixels = getattr(data, "images", None)
    item = pixels[index] if isinstance(pixels, Tensor) else data[index]
    if isinstance(item, Mapping):
        item = next((item[name] for name in _IMAGES if name in item), ())
    item = item[0] if isinstance(item, tuple | list) and item else item
    item = torch.as_tensor(item if isinstance(item, Tensor) else np.array(item)).detach().cpu().double()
    if item.ndim == 3 and item.shape[0] in (1, 3):
        item = item[0] if item.shape[0] == 1 else item.permute(1, 2, 0)
    if item.ndim != 2 and not (item.ndim == 3 and item.shape[2] == 3):
        raise TangentError(
            f"A sample has the shape {tuple(item.shape)}, which is not that of an image.",
            remedy="Pass images (N, C, H, W) with one or three channels, or N texts.",
        )
    low, high = item.min(), item.max()
    return (item - low) / (high - low).clamp(min=1e-12)


def class_name(targets: Tensor | None, index: int, names: Any) -> str:
    """Return the name of a sample's target; empty if it is not known."""
    if targets is None:
        return ""
    value = targets[index].item()
    try:
        return f"{value:g}" if names is None or not float(value).is_integer() else str(names[int(value)])
    except (IndexError, KeyError):  # fewer names than classes
        return f"{value:g}"


def _pyplot() -> Any:
    return require("matplotlib.pyplot", "Matplotlib", "plot", "It draws the picture.")


def _images(result: "Attribution", test: int, train: Any, tests: Any, best: Any, worst: Any, names: Any) -> Any:
    plt = _pyplot()

    count = len(best.indices)
    figure, axes = plt.subplots(2, count + 1, figsize=(1.2 * (count + 1), 3.0), layout="constrained", squeeze=False)
    shown = [(0, 0, image_of(tests, test), f"test {class_name(result.test_targets, test, names)}")]
    for row, top in enumerate((best, worst)):
        for column, (index, score) in enumerate(zip(top.indices.tolist(), top.scores.tolist(), strict=True)):
            label = class_name(result.train_targets, index, names)
            shown.append((row, column + 1, image_of(train, index), f"{label}  {score:+.2g}".strip()))
    for ax in axes.flat:
        ax.axis("off")
    for row, column, image, title in shown:
        axes[row, column].imshow(image.numpy(), cmap="gray_r" if image.ndim == 2 else None)
        axes[row, column].set_title(title, fontsize=8)
    figure.suptitle(f"Above: most helpful training samples. Below: most harmful ({result.method['name']}).", fontsize=9)
    return figure


def _texts(result: "Attribution", test: int, train: Any, tests: Any, best: Any, worst: Any, names: Any) -> Any:
    plt = _pyplot()

    def entry(text: str, title: str) -> list[tuple[str, bool]]:
        lines = textwrap.wrap(" ".join(text.split()), _WIDTH)[:3] or [""]
        return [(title, True), *((line, False) for line in lines)]

    written = entry(tests[test], f"test {class_name(result.test_targets, test, names)}".strip())
    for kind, top in (("helps", best), ("harms", worst)):
        for index, score in zip(top.indices.tolist(), top.scores.tolist(), strict=True):
            label = class_name(result.train_targets, index, names)
            written += entry(train[index], f"{kind}  {score:+.3g}  {label}".strip())
    figure, ax = plt.subplots(figsize=(7.5, 0.19 * len(written) + 0.6), layout="constrained")
    figure.suptitle(
        f"Training texts that help a test text most, and that harm it most ({result.method['name']})", fontsize=9
    )
    ax.axis("off")
    for number, (line, bold) in enumerate(written):
        where = 1 - (number + 0.5) / len(written)
        weight = "bold" if bold else "normal"
        ax.text(0 if bold else 0.02, where, line, fontsize=8, weight=weight, va="center", parse_math=False)
    return figure
