"""Numbers for the page: typed arrays by name, and a description of all of them in plain values."""

import io
import math
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tangentlab.analysis import NADs
from tangentlab.explorer._exploration import Exploration
from tangentlab.explorer._leave_one_out import SPEAKERS
from tangentlab.explorer._margins import margins
from tangentlab.explorer._shown import make_sheet
from tangentlab.explorer._state import State

SHEET = 2500
"""Images on one sheet."""
_FINE = 1_100_000
"""Bytes up to which all heat maps together have two bytes per entry; else one."""
_DTYPES = {"u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "i16": np.int16, "f32": np.float32}


@dataclass(frozen=True)
class Packed:
    """An array as the page reads it: value = offset + scale * number, little-endian.

    Attributes:
        kind: ``"u8"``, ``"u16"``, ``"u32"``, ``"i16"``, ``"f32"``, or a media type for a file.
        data: Its bytes.
        scale: The scale.
        offset: The offset.
        shape: Images on a sheet: width and height of one, and columns.
    """

    kind: str
    data: bytes
    scale: float = 1.0
    offset: float = 0.0
    shape: tuple[int, ...] = ()

    def header(self) -> dict[str, Any]:
        """Return everything but the bytes."""
        return {"t": self.kind, "s": self.scale, "o": self.offset, "d": list(self.shape)}

    def inline(self) -> dict[str, Any]:
        """Return the array as plain values."""
        return {**self.header(), "b": b64encode(self.data).decode()}


def floats(values: Tensor) -> Packed:
    """Encode numbers in float32."""
    return _packed("f32", values.detach().cpu().numpy())


def shorts(values: Tensor) -> Packed:
    """Encode numbers in 16 bits, with an error of at most 1.6e-5 of the largest."""
    size = float(values.abs().max()) if values.numel() else 0.0
    scale = size / 32767 if size > 0 else 1.0
    return Packed("i16", np.rint(values.double().cpu().numpy() / scale).astype("<i2").tobytes(), scale)


def indices(values: Tensor) -> Packed:
    """Encode nonnegative whole numbers in as few bytes as they need."""
    largest = int(values.max()) if values.numel() else 0
    return _packed("u8" if largest < 2**8 else "u16" if largest < 2**16 else "u32", values.cpu().numpy())


def triangle(cosines: Tensor, fine: bool) -> Packed:
    """Encode the upper triangle of a heat map without its diagonal, row by row, in one or two bytes per entry."""
    rows, columns = torch.triu_indices(len(cosines), len(cosines), 1)
    values = cosines[rows, columns].double()
    low, high = float(values.min()), float(values.max())
    steps = 65535 if fine else 255
    scale = (high - low) / steps or 1.0
    numbers = np.rint((values.numpy() - low) / scale)
    return Packed("u16" if fine else "u8", numbers.astype("<u2" if fine else "u1").tobytes(), scale, low)


def _packed(kind: str, values: np.ndarray) -> Packed:
    return Packed(
        kind, np.ascontiguousarray(values.reshape(-1).astype(np.dtype(_DTYPES[kind]).newbyteorder("<"))).tobytes()
    )


def arrays(found: Exploration) -> dict[str, Callable[[], Packed]]:
    """Return all arrays of the page by name, each packed when it is called for."""
    made: dict[str, Callable[[], Packed]] = {}
    labels, shown = found.labels, found.shown
    if labels is not None and labels.classes is not None:
        made["labels"] = partial(indices, labels.classes)
    elif labels is not None:
        made["targets"] = partial(floats, labels.targets[:, 0])
    if found.near_inputs is not None:
        made["inputs"] = partial(indices, found.near_inputs[0])
        made["input-distances"] = partial(floats, found.near_inputs[1])
    if shown.pixels is not None:
        for start in range(0, shown.count, SHEET):
            made[f"sheet/{start // SHEET}"] = partial(_sheet, shown.pixels[start : start + SHEET])
    made["heat-samples"] = lambda: indices(found.heat)
    entries = len(found.heat) * (len(found.heat) - 1) // 2
    fine = 2 * entries * len(found.states) <= _FINE
    for number, state in enumerate(found.states):
        for name, make in _of_state(found, state, fine).items():
            made[f"{name}/{number}"] = make
        for j in range(state.functions.values.shape[1]):
            made[f"function/{number}/{j}"] = partial(shorts, state.functions.values[:, j])
    return made


def _of_state(found: Exploration, state: State, fine: bool) -> dict[str, Callable[[], Packed]]:
    made: dict[str, Callable[[], Packed]] = {
        "heat": lambda: triangle(state.heat, fine),
        "diagonal": lambda: floats(state.diagonal),
        "eigenvalues": lambda: floats(state.spectrum.values.clamp(min=0)),
        "clusters": lambda: indices(state.clusters),
        "places": lambda: shorts(state.places),
        "near": lambda: indices(state.near[0]),
        "near-cosines": lambda: shorts(state.near[1]),
    }
    fit, spoken, outputs = state.fit, state.speakers, state.outputs
    if fit is not None and spoken is not None:
        rows = torch.arange(len(fit.output))
        made |= {
            "speakers": lambda: indices(spoken[0]),
            "terms": lambda: floats(spoken[1]),
            "predicted": lambda: indices(fit.output),
            "prediction": lambda: floats(fit.predictions[rows, fit.output]),
            "uncertainty": lambda: floats(fit.uncertainty),
            "error": lambda: floats(fit.error),
        }
        energy = state.functions.energy
        if energy is not None:
            made["energy"] = lambda: floats(energy)
        if found.labels is not None and found.labels.classes is not None:
            classes = found.labels.classes
            made["own-prediction"] = lambda: floats(fit.predictions[rows, classes])
    if outputs is not None and outputs.predicted is not None:
        predicted = outputs.predicted
        made["network-predicted"] = lambda: indices(predicted)
    if outputs is not None and outputs.loss is not None:
        loss = outputs.loss
        made["network-loss"] = lambda: floats(loss)
    pair = margins(state, found.labels)
    if pair is not None:
        made |= {
            "network-margin": lambda: floats(pair.network),
            "linear-margin": lambda: floats(pair.linear),
            "disagree": lambda: indices(pair.differ.long()),
        }
    return made


def _sheet(pixels: Tensor) -> Packed:
    sheet = make_sheet(pixels)
    return Packed(sheet.mime, sheet.file, shape=(sheet.width, sheet.height, sheet.columns))


def describe(found: Exploration) -> dict[str, Any]:
    """Return what the page needs besides arrays, in plain values."""
    labels, shown = found.labels, found.shown
    return {
        "title": found.title,
        "count": shown.count,
        "kind": shown.kind,
        "names": list(shown.names),
        "texts": list(shown.texts),
        "sheet": SHEET,
        "classes": list(labels.names) if labels is not None else [],
        "labeled": labels is not None,
        "embedding": found.embedding,
        "readout": found.readout,
        "near": found.states[0].near[0].shape[1],
        "speakers": min(SPEAKERS, shown.count - 1),
        "prior": labels.prior if labels is not None else 0.0,
        "states": [_state(found, number) for number in range(len(found.states))],
    }


def _state(found: Exploration, number: int) -> dict[str, Any]:
    state = found.states[number]
    functions, fit, labels = state.functions, state.fit, found.labels
    pair = margins(state, labels)
    change = found.changes[number] if found.changes else None
    return {
        "name": state.name,
        "trace": _round(float(state.diagonal.sum())),
        "rank": None if state.effective_rank is None else _round(state.effective_rank),
        "complete": state.spectrum.complete,
        "pairs": len(state.spectrum.values),
        "functions": functions.values.shape[1],
        "accuracy": None if functions.accuracy is None else _rounded(functions.accuracy),
        "chance": None if functions.chance is None else _rounded(functions.chance),
        "sides": None if functions.sides is None else functions.sides.tolist(),
        "fit": None
        if fit is None or labels is None
        else {
            "ridge": _round(fit.ridge),
            "exact": fit.exact,
            "accuracy": fit.accuracy(labels),
            "error": _round(float(fit.error.mean())),
        },
        "network": _accuracy(state, found),
        "layers": [
            {"name": layer.name, "share": _round(layer.share), "values": _rounded(layer.values)}
            for layer in state.layers
        ],
        "nads": None if state.nads is None else _directions(state.nads),
        "linear": None if pair is None else pair.summary(),
        "change": None
        if change is None
        else {
            "distance": _round(change.distance),
            "overlap": _round(change.overlap),
            "alignment": None if change.alignment is None else _round(change.alignment),
            "energy": None if change.energy is None else _round(change.energy),
            "overlaps": [_rounded(row, 4) for row in change.overlaps],
        },
    }


def _accuracy(state: State, found: Exploration) -> dict[str, Any] | None:
    outputs, labels = state.outputs, found.labels
    if outputs is None or labels is None or outputs.loss is None:
        return None
    right = None
    if outputs.predicted is not None and labels.classes is not None:
        right = float((outputs.predicted == labels.classes).double().mean())
    return {"accuracy": right, "loss": _round(float(outputs.loss.mean()))}


def _directions(nads: NADs) -> dict[str, Any]:
    """Return the directions as one small picture, each with its own range, zero in the middle."""
    from PIL import Image

    images = nads.directions.detach().cpu().double()
    images = images.unsqueeze(1) if images.ndim == 3 else images
    images = images if images.shape[1] in (1, 3) else images.mean(1, keepdim=True)
    unit = images / images.abs().amax((1, 2, 3), keepdim=True).clamp(min=1e-300)
    pixels = (127.5 + 127.5 * unit).round().byte().permute(0, 2, 3, 1)
    if pixels.shape[3] == 1:
        pixels = pixels.expand(-1, -1, -1, 3)
    row = torch.cat(list(pixels), 1).contiguous()
    buffer = io.BytesIO()
    Image.fromarray(row.numpy()).save(buffer, "PNG", optimize=True)
    return {
        "alignments": _rounded(nads.alignments),
        "width": int(pixels.shape[2]),
        "height": int(pixels.shape[1]),
        "image": b64encode(buffer.getvalue()).decode(),
    }


def _round(number: float, digits: int = 7) -> float | None:
    return float(f"{number:.{digits}g}") if math.isfinite(number) else None


def _rounded(numbers: Tensor, digits: int = 7) -> list[float | None]:
    return [_round(number, digits) for number in numbers.double().tolist()]
