"""Parameters in complex operations have no rule: the gradient of a complex product has a conjugate."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import tangentlab


class Spectral(nn.Module):
    """A filter of frequencies, whose real part looks right for samples without imaginary parts."""

    def __init__(self, product: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.product, self.p, self.q = product, nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        filtered = self.product(torch.fft.rfft(x), torch.complex(self.p, self.q))
        return self.out(torch.tanh(torch.fft.irfft(filtered, n=4)))


@pytest.mark.parametrize(
    "product",
    [
        torch.mul,
        torch.div,
        torch.add,
        lambda x, w: x * w + w,
        lambda x, w: (x.unsqueeze(-2) @ torch.diag(w)).squeeze(-2),
    ],
    ids=["product", "quotient", "sum", "both", "matrix"],
)
@pytest.mark.parametrize("symmetric", [1, 2, 0])
def test_kernel(product: Callable[[Tensor, Tensor], Tensor], symmetric: int) -> None:
    torch.manual_seed(0)
    model, x = Spectral(product).double(), torch.randn(9, 4, dtype=torch.float64)
    if symmetric:  # samples whose transform is real, at the end, where one is compared
        x[-symmetric:, 1] = x[-symmetric:, 3]
    expected = tangentlab.reference.ntk(model, x)
    assert (tangentlab.ntk(model, x) - expected).abs().max() <= 1e-10 * expected.abs().max()
