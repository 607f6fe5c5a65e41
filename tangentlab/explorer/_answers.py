"""What a server answers: the page, arrays, blocks of the kernel in any order, and the surroundings of a sample."""

import json
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tangentlab.explorer import _similar as similar
from tangentlab.explorer._exploration import Exploration
from tangentlab.explorer._packing import arrays
from tangentlab.explorer._page import page

_MOST = 400
"""Samples along a side of a block."""
# A sample's surroundings are sent by themselves.
_PER_SAMPLE = ("near/", "near-cosines/", "speakers/", "terms/", "inputs", "input-distances")


class Answers:
    """Everything that a server holds of an exploration.

    Args:
        found: The exploration.
        docs: Address of the documentation site, or None.
    """

    def __init__(self, found: Exploration, docs: str | None) -> None:
        self.found = found
        self.arrays = {name: make() for name, make in arrays(found).items() if not name.startswith(_PER_SAMPLE)}
        self.page = page(found, docs, self.arrays).encode()
        self._order = lru_cache(maxsize=8)(self._make_order)

    def sample(self, number: int, sample: int) -> bytes | None:
        """Return the samples around one, as JSON; None if there is no such checkpoint or sample."""
        if number >= len(self.found.states) or sample >= len(self.found):
            return None
        state, inputs = self.found.states[number], self.found.near_inputs
        around: dict[str, Any] = {"near": _pairs(state.near, sample), "inputs": [], "speakers": []}
        if inputs is not None:
            around["inputs"] = _pairs(inputs, sample)
        elif self.found.shown.features is not None:
            features, rows = self.found.shown.features, slice(sample, sample + 1)
            around["inputs"] = _pairs(similar.nearest(rows, torch.cdist(features[rows], features), largest=False), 0)
        if state.speakers is not None:
            around["speakers"] = _pairs(state.speakers, sample)
        return json.dumps(around).encode()

    def block(self, number: int, order: str, row: int, column: int, count: int) -> bytes | None:
        """Return the cosines of a square of samples in an order, float32 row by row; None if there is none."""
        size = len(self.found)
        if number >= len(self.found.states) or not 0 < count <= _MOST or max(row, column) + count > size:
            return None
        positions = self._order(number, order)
        if positions is None:
            return None
        state = self.found.states[number]
        rows, columns = positions[row : row + count], positions[column : column + count]
        kernel = state.kernel
        entries = kernel[rows][:, columns] if isinstance(kernel, Tensor) else kernel[rows, columns]
        scale = state.diagonal.clamp(min=0).sqrt()
        product = scale[rows, None] * scale[columns][None]
        cosine = torch.where(product > 0, entries.cpu().double() / product, 0.0).clamp(-1, 1)
        return bytes(cosine.float().contiguous().numpy().astype("<f4").tobytes())

    def _make_order(self, number: int, order: str) -> Tensor | None:
        """Return all samples in an order, the same that the page has."""
        state = self.found.states[number]
        if order == "given":
            return torch.arange(len(self.found))
        if order == "clusters":
            return state.clusters
        j = 0 if order == "class" else int(order.removeprefix("function-"))
        if j >= state.functions.values.shape[1]:
            return None
        packed = self.arrays[f"function/{number}/{j}"]  # as the page has it: ties of rounded values included
        values = torch.frombuffer(bytearray(packed.data), dtype=torch.int16).long()
        by_value = torch.argsort(values, descending=True, stable=True)
        labels = self.found.labels
        if order == "class" and labels is not None and labels.classes is not None:
            return by_value[torch.argsort(labels.classes[by_value], stable=True)]
        return by_value


def _pairs(found: tuple[Tensor, Tensor], row: int) -> list[list[float]]:
    indices, values = found[0][row].tolist(), found[1][row].tolist()
    return [[index, value] for index, value in zip(indices, values, strict=True)]
