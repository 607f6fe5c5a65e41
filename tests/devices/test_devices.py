"""No tensor of the CPU slips into a computation on a device: everything runs on a pretended one, with equal results.

What a GPU would refuse fails here, see ``tests/devices/pretend.py``. Planted errors show that it does.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import tangentlab
from tangentlab import analysis, linalg, training
from tests.devices.pretend import DEVICE, Held, MixedDevices, PretendDevice

Result = Any
N = 7


@pytest.fixture
def device() -> Iterator[PretendDevice]:
    with PretendDevice() as mode:
        yield mode


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Images(nn.Module):
    """Dense, grouped and strided convolutions, normalizations, a scale."""

    shape = (2, 6, 6)

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.two, self.three = nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 6, 3, stride=2, groups=2)
        self.scale, self.last = nn.Parameter(torch.ones(6)), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.three(F.gelu(self.two(F.silu(self.norm(self.one(x)))))))
        return self.last(h.mean((2, 3)) * self.scale)


class Texts(nn.Module):
    """Embeddings, attention, a shared layer, an operation without a rule."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(11, 6), nn.Parameter(torch.linspace(-1, 1, 30).view(5, 6))
        self.layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
        self.shared, self.centers, self.last = nn.Linear(6, 6), nn.Parameter(torch.eye(4, 6)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(self.tokens(x) + self.places)
        h = self.shared(torch.tanh(self.shared(h))).mean(1)
        return self.last(torch.cdist(h, self.centers))


def images() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return Images().double().eval(), normal(1, N, 2, 6, 6), normal(2, 4, 2, 6, 6)


def texts() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = Texts().double().eval()
    return model, torch.arange(N * 5).view(N, 5) % 11, torch.arange(20).view(4, 5) % 7


NETWORKS: dict[str, Callable[[], tuple[nn.Module, Tensor, Tensor]]] = {"images": images, "texts": texts}

KERNELS: dict[str, Callable[[nn.Module, Tensor, Tensor], Result]] = {
    "full": lambda m, x, y: tangentlab.ntk(m, x),
    "pntk": lambda m, x, y: tangentlab.ntk(m, x, readout="pntk"),
    "cross": lambda m, x, y: tangentlab.ntk(m, x, y, readout=1),
    "trace": lambda m, x, y: tangentlab.ntk(m, x, readout="trace"),
    "per class": lambda m, x, y: tangentlab.ntk(m, x, readout="per_class"),
    "matrix": lambda m, x, y: tangentlab.ntk(m, x, readout=torch.ones(3 if x.ndim > 2 else 2, 2).double()),
    "layers": lambda m, x, y: tangentlab.ntk(m, x, per_layer=True, readout="pntk"),
    "diagonal": lambda m, x, y: tangentlab.ntk(m, x, diagonal=True),
    "batches": lambda m, x, y: tangentlab.ntk(m, x, batch_size=3),
    "reference": lambda m, x, y: tangentlab.reference.ntk(m, x, readout="pntk"),
    "operator": lambda m, x, y: (
        tangentlab.NTKOperator(m, x) @ normal(3, len(x) * (3 if x.ndim > 2 else 2), 2).to(x.device)
    ),
    "operator of two sets": lambda m, x, y: (
        tangentlab.NTKOperator(m, x, y, readout=0).T @ normal(3, len(x), 2).to(x.device)
    ),
    "quadratic form": lambda m, x, y: tangentlab.NTKOperator(m, x, readout=0).quadratic_form(
        normal(3, len(x), 40).to(x.device)
    ),
    "operator's diagonal": lambda m, x, y: tangentlab.NTKOperator(m, x).diagonal(),
    "sketch": lambda m, x, y: tangentlab.sketch(m, x, 16).features,
    "data set": lambda m, x, y: tangentlab.ntk(m, torch.utils.data.TensorDataset(x.cpu()), readout="pntk"),
}


def outcome(result: Result) -> Any:
    """Return a result with its tensors on the CPU."""
    return pytree.tree_map(lambda t: t.detach().cpu() if isinstance(t, Tensor) else t, result)


def same(found: Result, expected: Result) -> None:
    torch.testing.assert_close(outcome(found), outcome(expected), rtol=1e-9, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.*fallback")
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("kind", KERNELS)
def test_kernels(kind: str, network: str, device: PretendDevice) -> None:
    model, x, y = NETWORKS[network]()
    expected = KERNELS[kind](model, x, y)
    device.count = 0
    found = KERNELS[kind](model.to(DEVICE), x.to(DEVICE), y.to(DEVICE))
    assert device.count > 100
    assert all(isinstance(t, Held) for t in pytree.tree_leaves(found))
    same(found, expected)


def test_linearized(device: PretendDevice) -> None:
    model, x, _ = images()
    step = torch.linspace(-1, 1, 3).double()

    def values(there: str) -> Result:
        linear = tangentlab.linearize(model.to(there))
        with torch.no_grad():
            linear.get_parameter("last.bias").add_(step.to(there))
        y = linear(x.to(there))
        y.sum().backward()
        return y, {name: p.grad for name, p in linear.named_parameters()}

    expected = outcome(values("cpu"))
    same(values(str(DEVICE)), expected)


@pytest.mark.parametrize("network", NETWORKS)
def test_device_moves_model_and_samples(network: str, device: PretendDevice) -> None:
    model, x, y = NETWORKS[network]()
    found = tangentlab.ntk(model, x, y, device=DEVICE)
    assert isinstance(found, Held)
    assert not any(isinstance(p, Held) for p in model.parameters())
    same(found, tangentlab.ntk(model, x, y))


def kernel() -> Tensor:
    a = normal(5, 12, 20)
    return a @ a.T


Y, Z = normal(6, 12, 2), normal(7, 4, 12)
LINEAR: dict[str, Callable[[Tensor, Tensor, Tensor], Result]] = {
    "eigh": lambda k, y, z: linalg.eigh(k).values,
    "leading": lambda k, y, z: linalg.eigh(k, 2).values,
    "regress": lambda k, y, z: linalg.regress(k, y, ridge=0.1).predict(z),
    "regress without ridge": lambda k, y, z: linalg.regress(k, y).predict(z),
    "regress by conjugate gradients": lambda k, y, z: linalg.regress(k, y, ridge=0.1, method="cg").predict(z),
    "regress in mixed precision": lambda k, y, z: linalg.regress(k, y, ridge=0.1, method="mixed").predict(z),
    "ridge path": lambda k, y, z: linalg.ridge_path(k, y).regression().predict(z),
    "extremes": lambda k, y, z: [linalg.extremes(k).smallest, linalg.extremes(k).largest],
    "nystrom": lambda k, y, z: linalg.nystrom(k, 12, seed=0) @ y,
    "singular values": lambda k, y, z: linalg.singular_values(k),
    "trace": lambda k, y, z: linalg.trace(k),
    "energy": lambda k, y, z: analysis.energy_concentration(k, y[:, 0], k=3),
    "alignment": lambda k, y, z: analysis.alignment(k, y),
    "norm": lambda k, y, z: analysis.rkhs_norm(k, y),
    "distance": lambda k, y, z: analysis.kernel_distance(k, k + k.T.cos().T @ k.cos()),
    "gradient flow": lambda k, y, z: training.GradientFlow(k, y).predict(1.0, z),
}


@pytest.mark.parametrize("kind", LINEAR)
def test_linear_algebra(kind: str, device: PretendDevice) -> None:
    expected = LINEAR[kind](kernel(), Y, Z)
    found = LINEAR[kind](kernel().to(DEVICE), Y.to(DEVICE), Z.to(DEVICE))
    same(found, expected)


@pytest.mark.parametrize("method", ["auto", "cg"])
def test_operators_are_solved(method: str, device: PretendDevice) -> None:
    model, x, y = images()
    cross = tangentlab.ntk(model, y, x, readout=0)

    def predictions(there: str) -> Result:
        operator = tangentlab.NTKOperator(model.to(there), x.to(there), readout=0)
        return linalg.regress(operator, Y[:N, 0].to(there), ridge=1.0, method=method).predict(cross.to(there))

    expected = outcome(predictions("cpu"))
    same(predictions(str(DEVICE)), expected)


@pytest.mark.parametrize("linear", [False, True], ids=["network", "linearized"])
@pytest.mark.parametrize("loss", [training.Squared(), training.SoftmaxCrossEntropy()], ids=["squared", "softmax"])
def test_training(loss: training.Loss, linear: bool, device: PretendDevice) -> None:
    spec = training.TrainingSpec(epochs=2, batch_size=3, optimizer=training.SGD(0.05, momentum=0.9), loss=loss, seed=0)
    labels = torch.arange(N) % 3

    def trained(there: str) -> Result:
        model, x, _ = images()
        model = tangentlab.linearize(model.to(there)) if linear else model.to(there)
        training.train(model, (x.to(there), labels.to(there)), spec, progress=False)
        return dict(model.named_parameters())

    same(trained(str(DEVICE)), trained("cpu"))


def plant(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put one error of the kind that only shows on a GPU into the engine."""
    from tangentlab.kernels import _agreement, _blocks
    from tangentlab.kernels.factors import Direct

    if kind == "a result on the CPU":
        zeros = torch.zeros
        monkeypatch.setattr(_blocks.torch, "zeros", lambda *a, device=None, **k: zeros(*a, **k))
    elif kind == "weights on the CPU":
        right = _agreement.Agreement.probed

        def probed(*arguments: Any) -> Any:
            found = right(*arguments)
            return replace(found, weights=found.weights.cpu())

        monkeypatch.setattr(_agreement.Agreement, "probed", probed)
    elif kind == "a generator of the CPU":
        weighted = _agreement.Agreement.weighted

        def drawn(self: Any, values: Tensor, each: bool) -> Tensor:
            torch.rand(3, generator=torch.Generator(), device=values.device)
            return weighted(self, values, each)

        monkeypatch.setattr(_agreement.Agreement, "weighted", drawn)
    else:
        gram = Direct.add_gram

        def add_gram(self: Direct, other: Direct, total: Any) -> None:
            gram(Direct(torch.from_numpy(self.g.numpy())), other, total)

        monkeypatch.setattr(Direct, "add_gram", add_gram)


@pytest.mark.parametrize("kind", ["a result on the CPU", "weights on the CPU", "a generator of the CPU", "NumPy"])
def test_planted_errors_are_found(kind: str, device: PretendDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, _ = images()
    plant(kind, monkeypatch)
    tangentlab.ntk(model, x)  # nothing is wrong on the CPU
    with pytest.raises((RuntimeError, TypeError, tangentlab.TangentError), match=r"CPU|numpy"):
        tangentlab.ntk(model.to(DEVICE), x.to(DEVICE))


def test_what_a_gpu_allows(device: PretendDevice) -> None:
    x = torch.ones(3).to(DEVICE)
    same(x * torch.tensor(2.0) + 1, torch.full((3,), 3.0))
    same(x[torch.tensor([0, 2])], torch.ones(2))
    same(torch.zeros(3).copy_(x), torch.ones(3))
    for wrong in (lambda: x + torch.ones(3), lambda: torch.ones(3)[x.long()], lambda: torch.cat([x, torch.ones(1)])):
        with pytest.raises(MixedDevices):
            wrong()
