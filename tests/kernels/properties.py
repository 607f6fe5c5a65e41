"""What must hold for the kernel of any network: one small function a property, for tests and for long runs.

Each takes a case, compares, and raises AssertionError with the size of the error. A TangentError is a refusal.
Errors are relative to |J_n| |J_m|, the lengths of two samples' gradients, so that one wrong sample among many shows.
"""

import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tangentlab
from tangentlab import TangentError
from tangentlab.engines import Shard
from tangentlab.store import compute
from tests.kernels.architectures import build, take
from tests.kernels.case import DOUBLE, Case

SINGLE = 1e-4
LABELED = 1e-10
READOUTS = ("full", "pntk", "trace", "per_class", 0, -1)


def definition(case: Case) -> None:
    """The kernel is that of plain automatic differentiation, for every readout."""
    case.agree("the full kernel", tangentlab.ntk(case.model, case.x), case.expected)
    readout = READOUTS[case.architecture.seed % len(READOUTS)]
    expected = tangentlab.reference.ntk(case.model, case.x, readout=readout)
    case.agree(f"readout {readout!r}", tangentlab.ntk(case.model, case.x, readout=readout), expected)


def two_numbers(outputs: Tensor, target: Tensor) -> Tensor:
    """A function of one sample's outputs, of any shape, and its target."""
    flat = outputs.reshape(-1)
    return torch.stack([flat.logsumexp(0), (flat * target.reshape(-1)).sum().tanh()])


def labeled(case: Case) -> None:
    """Functions of each sample's outputs and its target have the kernel of their definition."""
    outputs = run(case.model, case.x).detach()
    generator = torch.Generator().manual_seed(case.architecture.seed)
    real = torch.randn(outputs.shape, generator=generator, dtype=torch.float64)
    readouts: list[tuple[Any, Tensor]] = [("loss", real), (two_numbers, real)]
    if outputs.ndim == 2:
        classes = torch.randint(0, max(2, outputs.shape[1]), (case.count,), generator=generator)
        readouts += [("loss", classes), ("margin", classes), ("label", classes)][: 3 if outputs.shape[1] > 1 else 2]
    for readout, targets in readouts:
        own, options = Case(case.architecture), {"readout": readout, "targets": targets}
        expected = tangentlab.reference.ntk(case.model, case.x, **options)
        own.expected = expected if expected.ndim == 4 else expected[:, None, :, None]
        found = tangentlab.ntk(case.model, case.x, batch_size=2, **options)
        own.agree(f"readout {readout!r} of targets {tuple(targets.shape)}", found, expected, tolerance=LABELED)


def permuted(case: Case) -> None:
    """Samples in another order are the kernel's rows and columns in that order."""
    order = torch.randperm(case.count, generator=torch.Generator().manual_seed(case.architecture.seed))
    found = tangentlab.ntk(case.model, take(case.x, order))
    case.agree("samples in another order", found, case.expected[order][:, :, order], order, order)


def appended(case: Case) -> None:
    """More samples leave the block of the old ones as it was."""
    fewer = max(1, case.count // 2)
    whole = tangentlab.ntk(case.model, case.x)
    part = tangentlab.ntk(case.model, take(case.x, slice(fewer)))
    case.agree("the first samples alone", part, whole[:fewer, :, :fewer], slice(fewer), slice(fewer))


def repeated(case: Case) -> None:
    """A sample that stands twice in the data has its row twice."""
    order = torch.tensor([0, *range(case.count), 0])
    found = tangentlab.ntk(case.model, take(case.x, order))
    case.agree("a sample three times", found, case.expected[order][:, :, order], order, order)


def crossed(case: Case) -> None:
    """The kernel between two sets of samples is a block of the whole."""
    left, right = slice(max(1, case.count - 1)), slice(case.count // 2, None)
    found = tangentlab.ntk(case.model, take(case.x, left), take(case.x, right))
    case.agree("between two sets", found, case.expected[left][:, :, right], left, right)


def diagonal(case: Case) -> None:
    """The diagonal alone is the diagonal of the whole."""
    found = tangentlab.ntk(case.model, case.x, diagonal=True, batch_size=2)
    expected = torch.stack([case.expected[n, :, n] for n in range(case.count)])
    error = float(((found - expected).abs() / case.lengths[:, None, None] ** 2).max())
    assert error <= DOUBLE, f"the diagonal alone: off by {error:.1e}"


def batches(case: Case) -> None:
    """How many samples go through the network at a time changes nothing."""
    for size in (1, 2 + case.architecture.seed % 3):
        case.agree(f"batch_size={size}", tangentlab.ntk(case.model, case.x, batch_size=size), case.expected)


def budgets(case: Case) -> None:
    """The least memory that is accepted gives the same kernel as all of it."""
    for kibibytes in (16, 64, 256, 1024, 4096):
        try:
            found = tangentlab.ntk(case.model, case.x, memory_budget=f"{kibibytes}KiB", batch_size=1)
        except TangentError as refusal:
            if "memory" not in str(refusal).lower():
                raise
            continue
        case.agree(f"memory_budget={kibibytes}KiB", found, case.expected)
        return


def layers(case: Case) -> None:
    """Layers sum to the kernel, and each is the kernel of its own parameters."""
    table = tangentlab.explain(case.model, case.x)
    found = tangentlab.ntk(case.model, case.x, per_layer=True)
    case.agree("the sum of layers", torch.stack(list(found.values())).sum(0), case.expected)
    for layer, rows in table.groupby("layer"):
        names = [name for row in rows.parameters for name in row.split(", ")]
        expected = tangentlab.reference.ntk(case.model, case.x, parameters=names)
        case.agree(f"layer {layer}", found[layer], expected)


def layers_single(case: Case) -> None:
    """In single precision each layer, however little it contributes, is right relative to itself."""
    model, x = build(case.architecture, torch.float32)
    table = tangentlab.explain(model, x)
    found = tangentlab.ntk(model, x, per_layer=True)
    for layer, rows in table.groupby("layer"):
        names = [name for row in rows.parameters for name in row.split(", ")]
        own = Case(case.architecture)
        own.expected = tangentlab.reference.ntk(case.model, case.x, parameters=names)
        own.lengths = torch.maximum(own.lengths, 1e-9 * case.lengths)
        plain = tangentlab.reference.ntk(model, x, parameters=names)
        own.agree(f"layer {layer} in float32", found[layer], own.expected, tolerance=1e-3 + 10 * own.error(plain))


def subsets(case: Case) -> None:
    """The kernels of two halves of the parameters sum to the whole."""
    names = [name for name, p in case.model.named_parameters() if p.requires_grad]
    if len(names) < 2:
        return
    halves = names[::2], names[1::2]
    parts = []
    for half in halves:
        expected = tangentlab.reference.ntk(case.model, case.x, parameters=half)
        if not expected.any():
            return  # nothing depends on these, which is refused
        parts.append(tangentlab.ntk(case.model, case.x, parameters=half))
        case.agree(f"parameters={half}", parts[-1], expected)
    case.agree("the sum of two halves of the parameters", parts[0] + parts[1], case.expected)


def reordered(case: Case) -> None:
    """The order in which layers are registered changes nothing."""
    model, x = build(case.architecture, backwards=True)
    case.agree("layers registered in reverse order", tangentlab.ntk(model, x), case.expected)


def single(case: Case) -> None:
    """Single precision is about as close to double precision as plain automatic differentiation in it is."""
    model, x = build(case.architecture, torch.float32)
    noise = case.error(tangentlab.reference.ntk(model, x))
    case.agree("float32", tangentlab.ntk(model, x), case.expected, tolerance=SINGLE + 10 * noise)


def converted(case: Case) -> None:
    """A copy in another precision, or on a device named again, is the same network."""
    model, x = build(case.architecture, torch.float32)
    wide, wide_x = build(case.architecture, torch.float32)
    expected = Case(case.architecture)
    expected.model, expected.x = wide.double(), take_double(wide_x)
    expected.agree("dtype=torch.float64", tangentlab.ntk(model, x, dtype=torch.float64), expected.expected)
    expected.agree("device='cpu'", tangentlab.ntk(wide, expected.x, device="cpu"), expected.expected)
    noise = expected.error(tangentlab.reference.ntk(model, x))
    narrow = tangentlab.ntk(wide, expected.x, dtype=torch.float32)
    expected.agree("dtype=torch.float32", narrow, expected.expected, tolerance=SINGLE + 10 * noise)


def take_double(x: Any) -> Any:
    """The same samples in double precision."""
    if isinstance(x, Tensor):
        return x.double() if x.is_floating_point() else x
    if isinstance(x, dict):
        return {name: take_double(part) for name, part in x.items()}
    return tuple(take_double(part) for part in x)


def operator(case: Case) -> None:
    """Products, the diagonal and quadratic forms of the operator are those of the matrix."""
    size = case.expected.shape[0] * case.expected.shape[1]
    found = tangentlab.NTKOperator(case.model, case.x, batch_size=2)
    eye = torch.eye(size, dtype=torch.float64)
    case.agree("NTKOperator @ I", (found @ eye).view_as(case.expected), case.expected)
    matrix = case.expected.reshape(size, size)
    v = torch.randn(size, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    length = float(case.lengths.norm() ** 2)
    for what, one, two in (
        ("the operator's diagonal", found.diagonal(), matrix.diagonal()),
        ("the operator's quadratic form", found.quadratic_form(v), torch.einsum("im,ij,jm->m", v, matrix, v)),
    ):
        error = float((one - two).abs().max()) / length
        assert error <= 100 * DOUBLE, f"{what}: off by {error:.1e}"


def stored(case: Case) -> None:
    """A kernel computed into a store, by tiles and by shards, is the same, and by shards the same to the bit.

    Where one process warns that it leaves the rules, and another has no reason to, both are right up to rounding.
    """
    size = case.expected.shape[0] * case.expected.shape[1]
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        options: dict[str, Any] = {"readout": "full", "tile": 2, "progress": False}
        whole = compute(case.model, case.x, Path(folder) / "whole.zarr", **options).read()
        for index in range(2):
            shards = compute(case.model, case.x, Path(folder) / "shards.zarr", engine=Shard(index, 2), **options)
        assert shards.complete, "two shards of two leave tiles missing"
        parts = shards.read()
    case.agree("a store", whole.reshape(case.expected.shape), case.expected)
    assert whole.shape == (size, size)
    case.agree("a store by shards", parts.reshape(case.expected.shape), case.expected)
    if not any("fallback" in str(warning.message) for warning in seen):
        assert torch.equal(whole, parts), "two shards give other bits than one process"


class Sum(nn.Module):
    """The sum of two networks."""

    def __init__(self, one: nn.Module, two: nn.Module) -> None:
        super().__init__()
        self.one, self.two = one, two

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.one(*args, **kwargs) + self.two(*args, **kwargs)


def summed(case: Case) -> None:
    """Kernels of networks without common parameters add up; a network added to itself has four times the kernel."""
    other = Case(replace(case.architecture, seed=case.architecture.seed + 1))
    other.x = case.x
    expected = case.expected + other.expected
    both = Case(case.architecture)
    both.lengths = (case.lengths**2 + other.lengths**2).sqrt()
    both.agree("the sum of two networks", tangentlab.ntk(Sum(case.model, other.model).eval(), case.x), expected)
    twice = tangentlab.ntk(Sum(case.model, case.model).eval(), case.x)
    case.agree("a network added to itself", twice / 4, case.expected)


def scaled(case: Case) -> None:
    """c times the outputs has c^2 times the kernel."""
    c = (0.25, -3.0, 1e-3, 1e4)[case.architecture.seed % 4]
    found = tangentlab.ntk(case.model, case.x, output=lambda y: c * y)
    case.agree(f"{c} times the outputs", found / c**2, case.expected)


def run(model: nn.Module, x: Any) -> Tensor:
    """The outputs (N, ...) of all samples in one batch."""
    args, kwargs = ((), x) if isinstance(x, dict) else (x if isinstance(x, tuple) else (x,), {})
    outputs: Tensor = model(*args, **kwargs)
    return outputs


def call(model: nn.Module, x: Any) -> Tensor:
    """The outputs (N, O) of all samples in one batch."""
    outputs = run(model, x)
    return outputs.reshape(len(outputs), -1)


def linearized_gradients(case: Case) -> None:
    """The linearized model's gradients are the kernel's features."""
    model = tangentlab.linearize(case.model)
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for value in call(model, case.x).flatten():
        grads = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        pairs = zip(grads, parameters, strict=True)
        rows.append(torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs]))
    features = torch.stack(rows)
    case.agree("the linearized model's gradients", (features @ features.T).view_as(case.expected), case.expected)


def linearized_values(case: Case) -> None:
    """The linearized model's values move by the Jacobian times the displacement."""
    model = tangentlab.linearize(case.model)
    before = call(model, case.x)
    jacobian = tangentlab.reference.jacobian(case.model, case.x)
    generator = torch.Generator().manual_seed(0)
    moves = {}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                moves[name] = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                parameter.add_(moves[name])
        moved = call(model, case.x) - before
    expected = sum(torch.tensordot(part, moves[name], moves[name].ndim) for name, part in jacobian.items())
    length = float(torch.cat([move.flatten() for move in moves.values()]).norm()) * case.lengths[:, None]
    error = float(((moved - expected).abs() / length).max())
    assert error <= DOUBLE, f"the linearized model's values: off by {error:.1e} of |J_n| |theta - theta_0|"


def sketched(case: Case) -> None:
    """Features do not depend on batches, fit those of other samples, and average to the kernel."""
    count = sum(p.numel() for p in case.model.parameters() if p.requires_grad)
    k, seeds = min(8, count), 8
    whole = tangentlab.sketch(case.model, case.x, k, readout="full", progress=False)
    one = tangentlab.sketch(case.model, case.x, k, readout="full", batch_size=1, progress=False)
    part = tangentlab.sketch(case.model, take(case.x, slice(1)), k, readout="full", progress=False)
    length = float(case.lengths.max())
    for what, other in (("features by single samples", one), ("features of the first sample", part)):
        if whole.maps != other.maps:  # rules for some samples and not for others: two projections, never mixed
            with pytest.raises(tangentlab.TangentError, match="same projection"):
                whole.cross(other)
            continue
        error = float((whole.features[: other.shape[0]] - other.features).abs().max()) / length
        assert error <= DOUBLE * 100, f"{what}: off by {error:.1e}"
    matrix = case.expected.reshape(whole.shape)
    sketches = (tangentlab.sketch(case.model, case.x, k, readout="full", seed=s, progress=False) for s in range(seeds))
    mean = torch.stack([s.features @ s.features.T for s in sketches]).mean(0)
    variance = float((matrix.diagonal().sum() ** 2 + matrix.square().sum()) / k / seeds)
    error = float((mean - matrix).square().sum())
    assert error <= 3 * 25 * variance, f"{seeds} sketches: {(error / variance) ** 0.5:.1f} standard errors off"


PROPERTIES: dict[str, Callable[[Case], None]] = {
    function.__name__: function
    for function in (
        definition,
        labeled,
        permuted,
        appended,
        repeated,
        crossed,
        diagonal,
        batches,
        budgets,
        layers,
        layers_single,
        subsets,
        reordered,
        single,
        converted,
        operator,
        stored,
        summed,
        scaled,
        linearized_gradients,
        linearized_values,
        sketched,
    )
}
