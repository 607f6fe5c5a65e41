"""The numbers of tensors that are not plain arrays: sparse, nested, and of other layouts."""

import torch
from torch import Tensor


def parts_of(tensor: Tensor) -> list[Tensor]:
    """Return the plain tensors that hold a tensor's numbers: itself, or the indices and values of a sparse one."""
    tensor = tensor.detach()
    if tensor.is_nested:
        return [part for whole in tensor.unbind() for part in parts_of(whole)]
    if tensor.layout is torch.strided:
        return [tensor]
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor.to_dense()]
