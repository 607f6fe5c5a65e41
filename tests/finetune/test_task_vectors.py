"""Task vectors: arithmetic, files, refusals; exact for linearized models."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import functional_call, jvp

from tangentlab import TangentError, linearize
from tangentlab._copying import copy_model
from tangentlab.finetune import TaskVector


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.BatchNorm1d(8), nn.Linear(8, outputs)).double().eval()


def vector(model: nn.Module, seed: int) -> TaskVector:
    generator = torch.Generator().manual_seed(seed)
    return TaskVector(
        {name: torch.randn(p.shape, generator=generator, dtype=p.dtype) for name, p in model.named_parameters()}
    )


def product(model: nn.Module, direction: TaskVector, x: Tensor) -> Tensor:
    """J v by torch.func, from the definition."""
    base = {name: p.detach() for name, p in model.named_parameters()}
    return jvp(lambda w: functional_call(model, w, (x,)), (base,), (dict(direction.tensors),))[1]


scale = st.floats(-3, 3, allow_nan=False)


@settings(max_examples=20, deadline=None)
@given(a=scale, b=scale, seed=st.integers(0, 100))
def test_addition_is_exact_for_linearized_models(a: float, b: float, seed: int) -> None:
    model, x = network(), torch.randn(6, 5, dtype=torch.float64)
    one, two = vector(model, seed), vector(model, seed + 1)
    moved = (a * one + b * two).apply(linearize(model))
    expected = model(x) + a * product(model, one, x) + b * product(model, two, x)
    assert (moved(x) - expected).abs().max() <= 1e-10 * max(1.0, float(expected.abs().max()))


def test_vector_space() -> None:
    model = network()
    one, two = vector(model, 1), vector(model, 2)
    for found, expected in (
        (one + two, lambda a, b: a + b),
        (one - two, lambda a, b: a - b),
        (-one, lambda a, b: -a),
        (2 * one / 4, lambda a, b: a / 2),
        (sum([one, two]), lambda a, b: a + b),
    ):
        assert all(torch.allclose(found.tensors[n], expected(one.tensors[n], two.tensors[n])) for n in one)
    flat = [torch.cat([v.tensors[n].flatten() for n in one]) for v in (one, two)]
    assert one.dot(two) == pytest.approx(float(flat[0] @ flat[1]))
    assert one.cosine(one) == pytest.approx(1)
    part = one.without("3.*")
    assert set(part) == set(one) - {"3.weight", "3.bias"}
    assert torch.equal((part + two).tensors["3.bias"], two.tensors["3.bias"])


def test_between_and_apply_give_the_fine_tuned_network() -> None:
    base, tuned = network(), network()
    torch.manual_seed(1)
    for tensor in [*tuned.parameters(), tuned[2].running_mean]:
        tensor.data.add_(torch.randn_like(tensor))
    found = TaskVector.between(base, tuned)
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    again = found.apply(base)
    assert all(torch.allclose(t, again.state_dict()[n]) for n, t in tuned.state_dict().items())
    assert all(torch.equal(t, before[n]) for n, t in base.state_dict().items())
    halfway = found.apply(base, 0.5)
    assert torch.allclose(halfway[0].weight, (base[0].weight + tuned[0].weight) / 2)


def test_tied_weights_move_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    tuned = copy_model(model)
    tuned[0].weight.data += 1
    for found in (TaskVector.between(model, tuned), TaskVector.between(model.state_dict(), tuned.state_dict())):
        assert torch.allclose(found.apply(model)[1].weight, tuned[1].weight)


def test_of_a_linearized_model_is_its_displacement() -> None:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    lin = linearize(model)
    with torch.no_grad():
        lin.get_parameter("3.bias").add_(1)
    found = TaskVector.of(lin)
    assert "0.weight" not in found.tensors
    assert torch.allclose(found.tensors["3.bias"], torch.ones(3, dtype=torch.float64))
    assert found.norm() == pytest.approx(3**0.5)


def test_files(tmp_path: Path) -> None:
    model = network()
    one = vector(model, 3)
    one.save(tmp_path / "one.safetensors")
    again = TaskVector.load(tmp_path / "one.safetensors")
    assert all(torch.equal(t, again.tensors[n]) for n, t in one.tensors.items())
    torch.save(model.state_dict(), tmp_path / "base.pt")
    (tmp_path / "one.safetensors").write_bytes(b"damaged")
    with pytest.raises(TangentError, match="cannot be read"):
        TaskVector.load(tmp_path / "one.safetensors")
    assert TaskVector.between(tmp_path / "base.pt", model).norm() == 0


def test_without_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "safetensors.torch", None)
    with pytest.raises(TangentError, match="safetensors is not installed"):
        vector(network(), 0).save(tmp_path / "vector.safetensors")
    assert not list(tmp_path.iterdir())


def test_refusals() -> None:
    one = vector(network(), 0)
    with pytest.raises(TangentError, match="differ in 2 names or shapes"):
        TaskVector.between(network(3), network(4))
    with pytest.raises(TangentError, match="lacks 2 weights"):
        one.apply(network(4))
    with pytest.raises(TangentError, match="different shapes"):
        one + vector(network(4), 0)
    with pytest.raises(TangentError, match="cannot be multiplied"):
        one * one
    with pytest.raises(TangentError, match="No weight is named"):
        one.without("head.*")
    with pytest.raises(TangentError, match="is not linearized"):
        TaskVector.of(network())
    wide = network()
    wide[2].running_var.fill_(5)
    with pytest.raises(TangentError, match="variance of '2' would be negative"):
        TaskVector.between(network(), wide).apply(network(), -1)
