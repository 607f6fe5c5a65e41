"""What the record decides from names and arguments alone: reorderings, plain names, rows moved by an index."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab.kernels._dataflow import DataFlow, Step, Tape, full_name, plain_name
from tangentlab.kernels._isometries import isometry_scale
from tangentlab.kernels._row_moves import memory, moves_rows, tensors
from tests.kernels.parts import Functional
from tests.kernels.test_probe import probed, samples

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
    ("func", "further", "scale"),
    [
        (torch.permute, ((1, 0),), 1.0),
        (Tensor.permute, (1, 0), 1.0),
        (torch.t, (), 1.0),
        (Tensor.T.__get__, (), 1.0),  # type: ignore[attr-defined]
        (Tensor.H.__get__, (), 1.0),  # type: ignore[attr-defined]
        (Tensor.mH.__get__, (), 1.0),  # type: ignore[attr-defined]
        (torch.conj, (), 1.0),
        (Tensor.conj, (), 1.0),
        (torch.movedim, (0, 1), 1.0),
        (torch.roll, (1, 0), 1.0),
        (torch.flip, ((0,),), 1.0),
        (torch.neg, (), -1.0),
        (Tensor.neg, (), -1.0),
        (Tensor.negative, (), -1.0),
        (torch.mul, (3.0,), 3.0),
        (torch.div, (4.0,), 0.25),
        (torch.sum, (), None),
        (torch.exp, (), None),
    ],
    ids=lambda value: full_name(value) if callable(value) else "",
)
def test_operations_that_reorder_and_scale(func: Callable, further: tuple, scale: float | None) -> None:
    args = (X, *further)
    assert isometry_scale(full_name(func), args, {}, X, func(*args)) == scale


def test_a_result_of_another_type_or_size_is_no_reordering() -> None:
    assert isometry_scale("torch.mul", (X, 2.0), {}, X, (2 * X).double()) is None
    assert isometry_scale("torch.mul", (X, 2.0), {}, X, 2 * X[:2]) is None


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
    return indexed(X, index, shape, content)


def indexed(tensor: Tensor, index: object, shape: tuple[int, ...], content: Tensor | None) -> bool:
    known = set() if content is None else {memory(content)}
    shapes = [torch.Size(shape), *(part.shape for part in tensors(index))]
    return moves_rows("__getitem__", "torch.Tensor.__getitem__", (tensor, index), {}, shapes, known)


def test_rows_are_moved_by_indices_along_the_samples() -> None:
    rows, columns = torch.tensor([2, 0, 1]), torch.tensor([3, 0])
    assert moves(rows, rows)
    assert moves(rows)  # the same for all samples, but other rows
    assert not moves(torch.arange(3))
    assert moves(torch.tensor([True, True, True]))
    assert not moves(slice(None))
    assert not moves(slice(0, 3, 1))
    assert moves(slice(None, None, 2))
    assert moves(slice(1, None))
    assert not moves(0)  # a single one, which is common to all samples then
    assert moves([2, 0, 1])
    assert not moves((slice(None), columns), columns)  # within a sample
    assert not moves((slice(None), [3, 0]))
    assert moves((slice(None), columns), columns, shape=(3, 2))  # here the samples are along the second axis


def test_other_operands_than_in_the_other_run() -> None:
    """Where the control flow differs, the steps of two runs do not belong together."""
    assert indexed(X, 0, (2,), None)
    assert moves_rows("matmul", "torch.matmul", (X, X.T), {}, [X.shape], set())


def test_an_ellipsis_counts_the_axes_behind_it() -> None:
    columns = torch.tensor([3, 0])
    assert not moves((..., columns), columns)
    assert moves((..., columns), columns, shape=(3, 2))
    assert moves((..., torch.tensor([1, 0]), slice(None)))
    assert not moves((..., torch.arange(3), slice(None)))
    rows = torch.tensor([1, 0])
    assert moves((..., rows, slice(None)), rows)


def test_a_mask_with_content_selects_rows_on_every_axis() -> None:
    mask = torch.tensor([True, False, True])
    assert moves(mask, mask)
    inside = torch.tensor([True, False, True, True])
    assert moves((slice(None), inside), inside)  # the number of selected entries depends on the content
    assert not moves((slice(None), inside))


def test_an_ellipsis_behind_other_axes() -> None:
    columns = torch.tensor([3, 0])
    tensor = torch.zeros(5, 3, 4)
    assert not indexed(tensor, (slice(None), ..., columns), (5, 2, 4), columns)
    assert indexed(tensor, (slice(None), columns, ...), (5, 2, 4), columns)


def followed(*steps: Callable[[list[Tensor]], tuple[Callable[..., Any], tuple]]) -> bool:
    """Return whether operations may place samples by content: each gets the tensors so far, the samples first."""
    flow = DataFlow()
    few, many = [torch.randn(2, 4)], [torch.randn(3, 4)]
    flow.begin(many)
    for step in steps:
        func, args = step(few)
        shapes = [t.shape for t in args if isinstance(t, Tensor)]
        before = Step(full_name(func), shapes, list(_tensors(func(*args))))
        few.extend(before.outputs)
        func, args = step(many)
        made = list(_tensors(func(*args)))
        many.extend(made)
        flow.follow(func, args, {}, made, before)
    return flow.moves


def _tensors(result: Any) -> tuple[Tensor, ...]:
    return (result,) if isinstance(result, Tensor) else tuple(result)


def test_a_result_over_the_batch_that_comes_back_to_single_samples() -> None:
    assert followed(lambda t: (torch.amax, (t[0], 0)), lambda t: (torch.sub, (t[0], t[1])))
    assert not followed(lambda t: (torch.amax, (t[0], 1, True)), lambda t: (torch.sub, (t[0], t[1])))
    assert not followed(lambda t: (torch.amax, (t[0], 0)), lambda t: (torch.exp, (t[1],)))


def test_the_largest_of_each_sample_and_of_the_batch() -> None:
    assert not followed(lambda t: (torch.topk, (t[0], 2, 1)))
    assert followed(lambda t: (torch.topk, (t[0], 2, 0)))
    assert not followed(lambda t: (torch.kthvalue, (t[0], 2, 1)))


def test_a_tensor_without_memory_hides_what_it_holds() -> None:
    """Not known to hold content, because it has no address; what is made of it has one."""
    sparse = torch.eye(3).to_sparse()
    assert memory(sparse) is None
    assert followed(lambda t: (Tensor.to_dense, (sparse,)))


def test_operations_with_several_results_are_on_the_tape() -> None:
    tape = Tape()
    tape.note(torch.sort, torch.sort(X))
    tape.note(torch.exp, X.exp())
    tape.note(Tensor.__setitem__, None)
    tape.note(Tensor.dim, 2)
    assert tape.operations == [torch.sort, torch.exp, Tensor.__setitem__]
    assert tape.readings == []


@pytest.mark.parametrize("by_content", [False, True])
def test_rows_assigned_by_content_are_not_trusted(by_content: bool) -> None:
    def forward(m: Any, x: Tensor) -> Tensor:
        rows = torch.arange(len(x))
        rows = rows + 0 * x[:, 0].long() if by_content else rows
        hidden = torch.zeros(len(x), 3, dtype=x.dtype)
        hidden[rows] = m.a(x)
        return m.out(hidden.tanh())

    model = Functional(forward, a=nn.Linear(4, 3), out=nn.Linear(3, 2)).double()
    assert bool(probed(model, samples(6)).trusted) is not by_content


def test_an_output_that_is_a_view_may_be_changed_in_place() -> None:
    """A dense layer with a bias gives a view at several positions; its rule is kept all the same."""

    def forward(m: Any, x: Tensor) -> Tensor:
        hidden = F.linear(x.view(len(x), 2, 2), m.w, m.b)
        return hidden.mul_(2.0).tanh().sum(1)

    model = Functional(forward, w=torch.randn(3, 2), b=torch.randn(3)).double()
    assert probed(model, samples(6)).fallback == {}
