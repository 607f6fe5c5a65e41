"""The memory that factors lie in: of their own, in order, aligned; and memory that is used again."""

import pytest
import torch
from torch import Tensor

from tangentlab.kernels.factors._base import _ALIGNMENT, tidy
from tangentlab.kernels.factors._total import Workspace

WHOLE = torch.arange(48.0).reshape(6, 8)
GRAPH = WHOLE.clone().requires_grad_() * 2


@pytest.mark.parametrize(
    "tensor",
    [WHOLE.T, WHOLE[2:], WHOLE[:3], WHOLE[:, :4], WHOLE.flatten()[1:], GRAPH, GRAPH.T],
    ids=["transposed", "last rows", "first rows", "columns", "not aligned", "with a graph", "a view with a graph"],
)
def test_factors_have_memory_of_their_own(tensor: Tensor) -> None:
    """A part would keep the whole alive, and products round by how memory is aligned."""
    found = tidy(tensor)
    assert torch.equal(found, tensor)
    assert not found.requires_grad
    assert found.is_contiguous()
    assert found.data_ptr() % _ALIGNMENT == 0
    assert found.untyped_storage().nbytes() == found.numel() * found.element_size()


def test_what_lies_in_order_is_not_copied() -> None:
    whole = torch.rand(64)
    assert tidy(whole).data_ptr() == whole.data_ptr()


def test_a_workspace_grows_and_is_used_again() -> None:
    workspace, like = Workspace(), torch.empty(0)
    small = workspace.room(like, 2, 3)
    assert small.shape == (2, 3)
    assert workspace.room(like, 3, 1).data_ptr() == small.data_ptr()
    large = workspace.room(like, 4, 5)
    assert large.shape == (4, 5)
    assert workspace.room(like, 4, 5).data_ptr() == large.data_ptr()
    assert workspace.room(like.double(), 1).dtype == torch.float64
