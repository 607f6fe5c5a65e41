"""Units at their kinks: rounding decides their gradient in single precision, and double precision settles it."""

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab.kernels import _agreement


class AtKink(nn.Module):
    """A network with a ReLU at zero that is on for a batch of one and off in others, up to the rounding of a dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 100), nn.Linear(100, 3)
        with torch.no_grad():
            self.first.weight[0] = 0
            self.first.bias[0] = 1e-11
            self.last.weight[:, 0] *= 0.05

    def forward(self, x: Tensor) -> Tensor:
        rounding = 1e-3 * torch.finfo(x.dtype).eps * (1 if len(x) == 1 else -1)
        return self.last(torch.relu(self.first(x) + rounding))


class Weakened(nn.Module):
    """A network whose gradient, not its outputs, depends on the size of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 100), nn.Linear(100, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        share = 0.99 if len(x) == 1 else 1.0
        return self.last(share * y + (1 - share) * y.detach())


def forms(model: nn.Module, x: Tensor) -> set[str]:
    return set(tangentlab.explain(model, x).operation)


@pytest.mark.parametrize("count", [5, 60])
def test_a_unit_at_its_kink_is_not_a_wrong_rule(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, x = AtKink(), torch.randn(count, 8)
    assert "gradient check" not in forms(model, x)
    kernel = tangentlab.ntk(model, x)
    expected = tangentlab.reference.ntk(model, x)
    assert (kernel - expected).norm() < 1e-2 * expected.norm()
    monkeypatch.setattr(_agreement, "_KINKS", 0.0)  # without the comparison in double precision
    assert "gradient check" in forms(model, x)


@pytest.mark.parametrize("count", [5, 60])
def test_gradients_that_depend_on_the_batch_are_wrong_in_double_precision_too(count: int) -> None:
    torch.manual_seed(0)
    model, x = Weakened(), torch.randn(count, 8)
    assert "gradient check" in forms(model, x)
    kernel = tangentlab.ntk(model, x, parameters="first")
    expected = tangentlab.reference.ntk(model, x, parameters="first")
    assert (kernel - expected).norm() < 1e-4 * expected.norm()


def test_a_model_of_one_precision_has_no_second_opinion() -> None:
    class Single(AtKink):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    torch.manual_seed(0)
    assert "gradient check" in forms(Single(), torch.randn(6, 8))
