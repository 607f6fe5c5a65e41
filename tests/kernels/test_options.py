"""Readouts, subsets, layers, inputs of all kinds, batch sizes and budgets."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import tangentlab
from tangentlab import TangentError
from tests.kernels.parts import Functional


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3, stride=2),
        nn.Flatten(),
        nn.Linear(20, 6),
        nn.Tanh(),
        nn.Linear(6, outputs),
    ).double()


def images(n: int) -> Tensor:
    return torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(n), dtype=torch.float64)


def close(found: Tensor, expected: Tensor, tolerance: float = 1e-10) -> bool:
    assert found.shape == expected.shape
    return bool((found - expected).norm() <= tolerance * expected.norm())


MATRIX = torch.tensor([[1.0, 0.5], [0.0, -2.0], [3.0, 1.0]], dtype=torch.float64)


@pytest.mark.parametrize("readout", ["full", "pntk", 0, -1, MATRIX, "trace", "per_class"], ids=str)
@pytest.mark.parametrize("two", [False, True])
def test_readouts(readout: object, two: bool) -> None:
    model, x = network(), images(5)
    other = images(3) if two else None
    found = tangentlab.ntk(model, x, other, readout=readout)
    assert close(found, tangentlab.reference.ntk(model, x, other, readout=readout))


def test_readouts_by_definition() -> None:
    """Every readout from the full kernel, by the formulas of its docstring."""
    model, x = network(), images(4)
    full = tangentlab.ntk(model, x)
    assert close(tangentlab.ntk(model, x, readout="pntk"), full.sum((1, 3)) / 3)
    assert close(tangentlab.ntk(model, x, readout=1), full[:, 1, :, 1])
    assert close(tangentlab.ntk(model, x, readout="trace"), torch.einsum("nomo->nm", full))
    assert close(tangentlab.ntk(model, x, readout="per_class"), torch.einsum("nomo->onm", full))
    mixed = torch.einsum("nomp,or,ps->nrms", full, MATRIX, MATRIX)
    assert close(tangentlab.ntk(model, x, readout=MATRIX), mixed)


@pytest.mark.parametrize("readout", ["full", "pntk", MATRIX, "trace", "per_class"], ids=str)
def test_layers_sum_to_the_kernel(readout: object) -> None:
    model, x = network(), images(4)
    layers = tangentlab.ntk(model, x, readout=readout, per_layer=True)
    assert list(layers) == ["0", "2", "4", "6"]
    assert close(sum(layers.values()), tangentlab.reference.ntk(model, x, readout=readout))
    for name, kernel in layers.items():
        assert close(kernel, tangentlab.reference.ntk(model, x, readout=readout, parameters=name))


@pytest.mark.parametrize("readout", ["full", "pntk", 2, MATRIX, "trace", "per_class"], ids=str)
def test_diagonal(readout: object) -> None:
    model, x = network(), images(5)
    kernel = tangentlab.reference.ntk(model, x, readout=readout)
    if kernel.ndim == 4:
        expected = torch.stack([kernel[n, :, n] for n in range(5)])
    else:
        expected = kernel.diagonal(dim1=-2, dim2=-1)
    assert close(tangentlab.ntk(model, x, readout=readout, diagonal=True, batch_size=2), expected)
    layers = tangentlab.ntk(model, x, readout=readout, diagonal=True, per_layer=True)
    assert close(sum(layers.values()), expected)


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("4", ["4.weight", "4.bias"]),
        ("*.bias", ["0.bias", "2.bias", "4.bias", "6.bias"]),
        (["0.weight", "6"], ["0.weight", "6.weight", "6.bias"]),
        (lambda name, p: p.ndim == 4, ["0.weight", "2.weight"]),
    ],
    ids=["prefix", "pattern", "list", "function"],
)
def test_subset_of_parameters(chosen: object, names: list[str]) -> None:
    model, x = network(), images(4)
    expected = tangentlab.reference.ntk(model, x, parameters=names)
    assert close(tangentlab.ntk(model, x, parameters=chosen), expected)
    named = dict(model.named_parameters())
    assert close(tangentlab.ntk(model, x, parameters=[named[n] for n in names]), expected)


def test_frozen_parameters_do_not_count() -> None:
    model, x = network(), images(4)
    expected = tangentlab.reference.ntk(model, x, parameters=["2", "6.bias"])
    for name, p in model.named_parameters():
        p.requires_grad_(name.startswith("2") or name == "6.bias")
    assert close(tangentlab.ntk(model, x), expected)


@given(st.integers(1, 9), st.integers(1, 7), st.sampled_from([1, 2, 3, 5, 64]), st.sampled_from(["full", "pntk"]))
@settings(max_examples=25, deadline=None)
def test_batch_size_does_not_matter(n1: int, n2: int, batch_size: int, readout: str) -> None:
    model, x1, x2 = network(), images(n1), images(n2)
    expected = tangentlab.ntk(model, x1, x2, readout=readout)
    assert close(tangentlab.ntk(model, x1, x2, readout=readout, batch_size=batch_size), expected, 1e-12)


@pytest.mark.parametrize("readout", ["full", "pntk", "trace", "per_class"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_blocks_under_a_small_budget(readout: str, per_layer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for three samples' factors the kernel comes in blocks, and is the same."""
    from tangentlab.kernels._memory import Budget

    model, x = network(), images(11)
    monkeypatch.setattr(Budget, "resident", 3)
    found = tangentlab.ntk(model, x, readout=readout, per_layer=per_layer)
    total = sum(found.values()) if per_layer else found
    assert close(total, tangentlab.reference.ntk(model, x, readout=readout))
    pair = tangentlab.ntk(model, x, images(4), readout=readout)
    assert close(pair, tangentlab.reference.ntk(model, x, images(4), readout=readout))


def test_many_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from tangentlab.kernels import _contract as contract

    monkeypatch.setattr(contract, "TILE", 60)
    monkeypatch.setattr(contract, "_ROWS", (5, 7))
    model, x = network(), images(13)
    assert close(tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x))
    kernel = tangentlab.ntk(model, x, readout="pntk")
    assert torch.equal(kernel, kernel.T)


class Pairs(Dataset):
    def __init__(self, x: Tensor) -> None:
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.x[index], index


def test_datasets_and_loaders() -> None:
    model, x = network(), images(7)
    expected = tangentlab.ntk(model, x)
    assert close(tangentlab.ntk(model, Pairs(x)), expected)
    assert close(tangentlab.ntk(model, Pairs(x), batch_size=2), expected)
    assert close(tangentlab.ntk(model, TensorDataset(x), input=lambda item: item[0]), expected)
    assert close(tangentlab.ntk(model, DataLoader(Pairs(x), batch_size=3)), expected)
    swapped = DataLoader([(i, x[i]) for i in range(7)], batch_size=4)
    assert close(tangentlab.ntk(model, swapped, input=lambda batch: batch[1]), expected)


def test_tuples_and_dicts() -> None:
    torch.manual_seed(0)
    model = Functional(
        lambda m, ids, mask, scale=1.0: {"logits": m.out((m.e(ids) * mask[..., None]).sum(1)) * scale},
        e=nn.Embedding(6, 4),
        out=nn.Linear(4, 3),
    ).double()
    ids, mask = torch.randint(0, 6, (5, 4)), (torch.rand(5, 4) > 0.3).double()

    def logits(result: dict[str, Tensor]) -> Tensor:
        return result["logits"]

    expected = tangentlab.reference.ntk(model, (ids, mask), output=logits)
    assert close(tangentlab.ntk(model, (ids, mask), output=logits), expected)
    assert close(tangentlab.ntk(model, [ids, mask], output=logits), expected)
    data = {"ids": ids, "mask": mask, "scale": 1.0}
    assert close(tangentlab.ntk(model, data, output=logits), expected)
    rows = [{"ids": ids[i], "mask": mask[i]} for i in range(5)]
    assert close(tangentlab.ntk(model, DataLoader(rows, batch_size=2), output=logits), expected)


def test_samples_of_different_shapes() -> None:
    """Fully convolutional networks and sequence models take samples of any size: the two sides may differ."""
    torch.manual_seed(0)
    conv = Functional(lambda m, x: m.out(torch.tanh(m.c(x)).mean((2, 3))), c=nn.Conv2d(2, 3, 3), out=nn.Linear(3, 2))
    conv.double()
    small, large = images(3), torch.randn(4, 2, 9, 7, dtype=torch.float64)
    assert close(tangentlab.ntk(conv, small, large), tangentlab.reference.ntk(conv, small, large))
    words = Functional(
        lambda m, i: m.out(torch.tanh(m.a(m.e(i))).mean(1)),
        e=nn.Embedding(5, 3),
        a=nn.Linear(3, 3),
        out=nn.Linear(3, 2),
    )
    words.double()
    short, long = torch.randint(0, 5, (3, 1)), torch.randint(0, 5, (4, 6))
    assert close(tangentlab.ntk(words, short, long), tangentlab.reference.ntk(words, short, long))


def test_outputs_of_any_shape() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    x = torch.randn(5, 2, 4).double()
    assert tangentlab.ntk(model, x).shape == (5, 6, 5, 6)
    flat = tangentlab.ntk(model, x, output=lambda y: y[:, 0, 0])
    assert flat.shape == (5, 1, 5, 1)
    assert close(flat[:, 0, :, 0], tangentlab.ntk(model, x, readout=0))


def test_precision_on_request() -> None:
    model, x = network().float(), images(4).float()
    double = tangentlab.ntk(model, x, dtype=torch.float64)
    assert double.dtype == torch.float64
    assert close(double, tangentlab.ntk(model.double(), x.double()))
    assert next(model.parameters()).dtype == torch.float64, "the test converted it"
    model.float()
    tangentlab.ntk(model, x, dtype=torch.float64)
    assert all(p.dtype == torch.float32 and p.grad is None for p in model.parameters())


def test_half_precision() -> None:
    model, x = network(), images(4)
    expected = tangentlab.ntk(model, x)
    assert close(tangentlab.ntk(model, x, dtype=torch.bfloat16).double(), expected, 0.1)


def test_model_is_left_alone() -> None:
    model, x = network(), images(4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    with torch.no_grad():
        tangentlab.ntk(model, x)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_progress_bar(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    tangentlab.ntk(network(), images(5), progress=True)
    assert "NTK" in capsys.readouterr().err
    tangentlab.ntk(network(), images(5), progress=False)
    assert capsys.readouterr().err == ""


def test_explain_says_what_is_kept() -> None:
    table = tangentlab.explain(network(), images(4), readout="pntk")
    assert list(table.columns) == ["layer", "parameters", "operation", "form", "floats", "operations", "share"]
    assert list(table.layer) == ["0", "0", "2", "2", "4", "6"]
    assert table.set_index("parameters").floats["4.weight, 4.bias"] == 20 + 6


def test_logits_are_found() -> None:
    """What models of transformers return has its outputs as ``logits``; ``output=`` goes first."""

    class Result:
        def __init__(self, logits: Tensor) -> None:
            self.logits, self.hidden = logits, 2 * logits

    class Model(nn.Linear):
        def forward(self, x: Tensor) -> Result:  # type: ignore[override]
            return Result(super().forward(x))

    torch.manual_seed(0)
    model, plain, x = Model(3, 2).double(), nn.Linear(3, 2).double(), torch.randn(5, 3).double()
    plain.load_state_dict(model.state_dict())
    kernel = tangentlab.ntk(plain, x)
    assert close(tangentlab.ntk(model, x), kernel)
    assert close(tangentlab.reference.ntk(model, x), kernel)
    assert close(tangentlab.ntk(model, x, output=lambda result: result.hidden), 4 * kernel)


def test_control_flow_that_changes_on_the_way() -> None:
    """The probe sees one branch and a later batch takes the other: everything goes through the fallback."""
    torch.manual_seed(0)
    model = Functional(
        lambda m, x: (
            m.a(x)
            if bool((x[:, 0] > 0).all())
            else (m.b(torch.tanh(m.a(x))) if len(x) == 1 else torch.cat([m.forward(r[None]) for r in x]))
        ),
        a=nn.Linear(4, 3),
        b=nn.Linear(3, 3),
    ).double()
    x = torch.randn(9, 4).double()
    x[:, 0] = x[:, 0].abs() + 0.1
    x[2, 0] = -1  # not among the samples that the probe looks at
    assert (tangentlab.explain(model, x).form != "fallback").all()
    assert close(tangentlab.ntk(model, x, batch_size=3), tangentlab.reference.ntk(model, x))


def test_rows_in_another_order() -> None:
    """Rows sorted by their content have a sample axis of the right length and the wrong order."""
    torch.manual_seed(0)

    def forward(m: nn.Module, x: Tensor) -> Tensor:
        order = x[:, 0].argsort()
        return m.a(x[order]).tanh()[order.argsort()] @ m.b

    model = Functional(forward, a=nn.Linear(4, 3), b=torch.randn(3, 2)).double()
    x = torch.randn(7, 4).double()
    x[0, 0], x[3, 0], x[-1, 0] = 3, 2, 1
    assert close(tangentlab.ntk(model, x), tangentlab.reference.ntk(model, x))
    assert set(tangentlab.explain(model, x).form) == {"fallback", "gradient"}


def test_pairs_for_a_model_of_two_inputs() -> None:
    """The second part is not dropped silently where it could be the model's second input."""
    model = Functional(lambda m, x, y=None: m.a(x if y is None else x * y), a=nn.Linear(5, 2)).double()
    x, y, label = torch.randn(4, 5).double(), torch.randn(4, 5).double(), torch.arange(4)
    both, alone = tangentlab.ntk(model, (x, y)), tangentlab.ntk(model, x)
    for kernel in (tangentlab.ntk, tangentlab.reference.ntk):
        for pairs in (TensorDataset(x, y), DataLoader(TensorDataset(x, y), batch_size=3)):
            with pytest.raises(TangentError, match="takes a second input"):
                kernel(TwoInputs(model), pairs)
            assert close(kernel(TwoInputs(model), pairs, input=tuple), both)
            assert close(kernel(TwoInputs(model), pairs, input=lambda item: item[0]), alone)
        for labeled in (TensorDataset(x, label), DataLoader(TensorDataset(x, label), batch_size=3)):
            assert close(kernel(TwoInputs(model), labeled), alone)


class TwoInputs(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, y: torch.Tensor | None = None) -> torch.Tensor:
        return self.inner(x, y)


@pytest.mark.parametrize("readout", ["full", "pntk", "trace", "per_class"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_layers_in_portions(readout: str, per_layer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for a third of the factors, some layers come at a time, and all samples are contracted at once."""
    from tangentlab.kernels import _blocks
    from tangentlab.kernels._plan import Plan

    model, x, y = network(), images(7), images(4)
    seen: list[int] = []
    right = Plan.portions

    def portions(plan: Plan, capacity: int) -> list[Plan] | None:
        largest = max(plan.group_bytes(group) for group in plan.left.groups)
        found = right(plan, plan.work.samples * max(largest, plan.sample_bytes(plan.left) // 3))
        assert found is not None
        seen.append(len(found))
        return found

    monkeypatch.setattr(Plan, "portions", portions)
    monkeypatch.setattr(_blocks, "_add_blocks", None)
    for args in ((x,), (x, y)):
        found = tangentlab.ntk(model, *args, readout=readout, per_layer=per_layer, batch_size=3)
        total = sum(found.values()) if per_layer else found
        assert close(total, tangentlab.reference.ntk(model, *args, readout=readout))
    assert min(seen) > 1
    if per_layer:
        for layer, kernel in found.items():
            assert close(kernel, tangentlab.reference.ntk(model, x, y, readout=readout, parameters=[layer]))
