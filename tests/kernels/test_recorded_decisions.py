"""What the record decides from names and arguments alone: reorderings, plain names, rows moved by an index."""

import pytest
import torch
from torch import Tensor

from tangentlab.kernels._dataflow import Step, _moves_by_index, memory, plain_name
from tangentlab.kernels._isometries import isometry_scale

X = torch.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("args", "kwargs", "scale"),
    [
        ((X, 0, 1), {}, 1.0),
        ((X,), {"dim0": 0, "dim1": 1}, 1.0),
        ((X, 0, 1), {"rounding_mode": "floor"}, None),
        ((X, torch.float32), {}, None),
    ],
    ids=["positions", "names", "unknown keyword", "dtype"],
)
def test_a_reordering_with_an_unknown_argument_is_none(args: tuple, kwargs: dict, scale: float | None) -> None:
    assert isometry_scale("torch.transpose", args, kwargs, X, X.T) == scale


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("torch.Tensor.__getitem__", "__getitem__"),
        ("torch.Tensor.__setitem__", "__setitem__"),
        ("torch.Tensor.__rtruediv__", "div"),
        ("torch.Tensor.__iadd__", "add"),
        ("torch.Tensor.add_", "add"),
        ("torch.Tensor.requires_grad_", "requires_grad_"),
        ("torch.Tensor.T.__get__", "T"),
    ],
)
def test_plain_names(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def moves(index: object, content: Tensor | None = None, shape: tuple[int, ...] = (2, 4)) -> bool:
    """Return whether indexing X may move rows, where the same operation had operands of ``shape`` before."""
    before = Step("__getitem__", [torch.Size(shape)], [])
    return _moves_by_index((X, index), before, set() if content is None else {memory(content)})


def test_rows_are_moved_by_indices_with_content_along_the_samples() -> None:
    rows, columns = torch.tensor([2, 0, 1]), torch.tensor([3, 0])
    assert moves(rows, rows)
    assert not moves(rows)  # the same for all samples
    assert moves([2, 0, 1])
    assert not moves((slice(None), columns), columns)  # within a sample
    assert not moves((slice(None), [3, 0]))
    assert moves((slice(None), columns), columns, shape=(3, 2))  # here the samples are along the second axis


def test_an_ellipsis_counts_the_axes_behind_it() -> None:
    columns = torch.tensor([3, 0])
    assert not moves((..., columns), columns)
    assert moves((..., columns), columns, shape=(3, 2))
    assert moves((..., torch.tensor([1, 0]), slice(None)), None) is False
    rows = torch.tensor([1, 0])
    assert moves((..., rows, slice(None)), rows)


def test_a_mask_with_content_selects_rows_on_every_axis() -> None:
    mask = torch.tensor([True, False, True])
    assert moves(mask, mask)
    inside = torch.tensor([True, False, True, True])
    assert moves((slice(None), inside), inside)  # the number of selected entries depends on the content
    assert not moves((slice(None), inside))
