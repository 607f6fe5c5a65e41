"""How samples are shown: as images on one sheet, as texts, or as rows of numbers."""

import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError

_PIXELS = 3_000_000
"""Pixels of a sheet of images; larger images are reduced to fit."""
_SIDE = 96
"""Pixels of the longer side of an image."""
_LETTERS = 300
"""Characters of a text that are shown."""
_NUMBERS = 24
"""Numbers of a row that are shown."""


@dataclass(frozen=True, eq=False)
class Shown:
    """The samples as the page shows them.

    Attributes:
        kind: ``"image"``, ``"text"`` or ``"row"``.
        count: N.
        pixels: For images, (N, H, W, 1 or 3) bytes, at most 96 pixels wide and high.
        texts: For texts, what is shown of them; for rows, their numbers in words.
        names: Names of the samples; empty where they have none.
        features: The inputs as rows of numbers (N, d), for distances between inputs; None for texts.
    """

    kind: str
    count: int
    pixels: Tensor | None = None
    texts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    features: Tensor | None = None


def make_shown(
    data: Any, show: Any, decode: Callable[[list[int]], str] | None, names: Sequence[Any] | None, count: int
) -> Shown:
    """Choose how samples are shown, by what ``show`` or else the data consists of.

    Args:
        data: The samples, as the network takes them.
        show: What to show in place of them: images, texts, or rows.
        decode: Turns the token numbers of a sample into a text.
        names: Names of the samples.
        count: N.

    Raises:
        TangentError: There is not one entry per sample.
    """
    given = data if show is None else show
    labels = tuple(str(name) for name in names) if names is not None else ()
    for what, there in (
        ("show", len(given) if isinstance(given, Sequence) else count),
        ("names", len(labels) or count),
    ):
        if there != count:
            raise TangentError(
                f"{what} has {there:,} entries, and there are {count:,} samples.", remedy="Pass one per sample."
            )
    if isinstance(given, Sequence) and not isinstance(given, Tensor) and all(isinstance(text, str) for text in given):
        return Shown("text", count, texts=tuple(_shortened(text) for text in given), names=labels)
    if isinstance(given, Mapping) and "input_ids" in given:
        return Shown("text", count, texts=_tokens(given, decode), names=labels)
    values = pixels_of(given)
    if values is None:
        return Shown("row", count, texts=("",) * count, names=labels)
    if len(values) != count:
        raise TangentError(
            f"The argument show has {len(values):,} entries, and there are {count:,} samples.",
            remedy="Pass one per sample.",
        )
    inputs = getattr(data, "inputs", None)
    features = inputs() if callable(inputs) else data if isinstance(data, Tensor) else values
    features = features.detach().cpu().reshape(count, -1).float() if isinstance(features, Tensor) else None
    if values.ndim not in (3, 4):
        return Shown("row", count, texts=_rows(values.reshape(count, -1)), names=labels, features=features)
    return Shown("image", count, _reduced(as_bytes(values), _SIDE), names=labels, features=features)


def pixels_of(data: Any) -> Tensor | None:
    """Return samples as one tensor (N, ...) of numbers; None if they are not one."""
    images = getattr(data, "images", None)
    if isinstance(images, Tensor):
        return images.detach().cpu()
    if isinstance(data, Tensor) or hasattr(data, "__array__"):
        return torch.as_tensor(data).detach().cpu()
    if isinstance(data, Mapping | str | bytes) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
        return None
    items = [data[i][0] if isinstance(data[i], tuple | list) else data[i] for i in range(len(data))]
    if not all(isinstance(item, Tensor) and item.shape == items[0].shape for item in items):
        return None
    return torch.stack(items).detach().cpu()


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…"


def _tokens(data: Mapping[str, Any], decode: Callable[[list[int]], str] | None) -> tuple[str, ...]:
    """Return the tokens of every sample in words, without those that the attention mask leaves out."""
    numbers = torch.as_tensor(data["input_ids"])
    mask = (
        torch.as_tensor(data["attention_mask"]).bool() if "attention_mask" in data else torch.ones_like(numbers).bool()
    )
    rows = [row[kept].tolist() for row, kept in zip(numbers, mask, strict=True)]
    return tuple(_shortened(" ".join(map(str, row)) if decode is None else decode(row)) for row in rows)


def _rows(values: Tensor) -> tuple[str, ...]:
    more = " …" if values.shape[1] > _NUMBERS else ""
    return tuple(", ".join(f"{number:.4g}" for number in row) + more for row in values[:, :_NUMBERS].double().tolist())


@dataclass(frozen=True)
class Sheet:
    """Images side by side in one file.

    Attributes:
        file: The file.
        mime: Its media type.
        width: Pixels of one image.
        height: Likewise.
        columns: Images in a row.
    """

    file: bytes
    mime: str
    width: int
    height: int
    columns: int


def make_sheet(pixels: Tensor) -> Sheet:
    """Draw images (n, H, W, channels) on one sheet, reduced where they have too many pixels."""
    from PIL import Image

    count, height, width, channels = pixels.shape
    pixels = _reduced(pixels, max(1, int(max(height, width) * math.sqrt(_PIXELS / (count * height * width)))))
    count, height, width, channels = pixels.shape
    columns = max(1, math.ceil(math.sqrt(count * height / width)))
    rows = math.ceil(count / columns)
    grid = torch.zeros(rows * columns, height, width, channels, dtype=torch.uint8)
    grid[:count] = pixels
    array = (
        grid.view(rows, columns, height, width, channels).transpose(1, 2).reshape(rows * height, columns * width, -1)
    )
    image = Image.fromarray(array[..., 0].numpy() if channels == 1 else array.numpy())
    buffer = io.BytesIO()
    if channels == 1 and height * width <= 256:  # few pixels: every one counts
        image.save(buffer, "PNG", optimize=True)
        return Sheet(buffer.getvalue(), "image/png", width, height, columns)
    image.save(buffer, "JPEG", quality=88, subsampling=0)  # colors at full resolution; every browser reads it
    return Sheet(buffer.getvalue(), "image/jpeg", width, height, columns)


def _reduced(pixels: Tensor, side: int) -> Tensor:
    """Reduce images whose longer side has more pixels."""
    height, width = pixels.shape[1:3]
    scale = side / max(height, width)
    if scale >= 1:
        return pixels
    small = max(1, round(height * scale)), max(1, round(width * scale))
    parts = [
        torch.nn.functional.interpolate(part.permute(0, 3, 1, 2).float(), small, mode="area").round().byte()
        for part in pixels.split(1024)
    ]
    return torch.cat(parts).permute(0, 2, 3, 1).contiguous()


def as_bytes(values: Tensor) -> Tensor:
    """Scale images to (N, H, W, 1 or 3) bytes, with the range of each channel over all images.

    That undoes a normalization, which is the same for all images. Channels other than one, three or four are averaged.
    """
    images = values.unsqueeze(1) if values.ndim == 3 else values
    if images.shape[1] not in (1, 3, 4) and images.shape[-1] in (1, 3, 4):
        images = images.permute(0, 3, 1, 2)
    images = images[:, :3] if images.shape[1] == 4 else images
    images = images if images.shape[1] in (1, 3) else images.float().mean(1, keepdim=True)
    if images.dtype != torch.uint8:
        images = torch.nan_to_num(images.float())
        low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
        images = (255 * (images - low) / (high - low).clamp(min=1e-12)).round().byte()
    return images.permute(0, 2, 3, 1).contiguous()
