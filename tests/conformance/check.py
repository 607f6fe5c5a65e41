"""A family against plain automatic differentiation: every comparison as one number, or a refusal."""

import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

import tangentlab
from tangentlab import TangentError
from tests.conformance.family import Problem, autograd_fails, samples_mix

TOLERANCE = 1e-8
"""Of sqrt(K_ii K_jj), in float64."""


@dataclass
class Verdict:
    """What came of a family.

    Attributes:
        errors: The relative error of each comparison that was made.
        refusals: The error of each part ("kernel", "linearization") that was refused.
    """

    errors: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, TangentError] = field(default_factory=dict)

    def wrong(self, tolerance: float = TOLERANCE) -> dict[str, float]:
        return {name: error for name, error in self.errors.items() if not error <= tolerance}  # NaN is wrong, too


def examine(problem: Problem) -> Verdict:
    """Kernel, layers and linearization of a float64 problem against a loop of ``torch.autograd.grad``.

    Where samples influence each other, the kernel is refused or is that of the samples one at a time, and a warning
    says that the batch was left; the linearization is that of the batch.
    """
    fails, mix = autograd_fails(problem), samples_mix(problem)
    alone = {} if fails else sample_jacobians(problem)  # whatever is given without gradients is wrong
    together = whole_jacobian(problem) if mix and not fails else alone
    verdict = Verdict()
    try:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            _kernels(problem, alone, verdict.errors)
        if mix and not any("slow fallback" in str(warning.message) for warning in heard):
            verdict.errors["a kernel of samples alone without a warning"] = torch.inf
    except TangentError as error:
        verdict.refusals["kernel"] = error
    try:
        _linearization(problem, together, verdict.errors)
    except TangentError as error:
        verdict.refusals["linearization"] = error
    return verdict


def sample_jacobians(problem: Problem) -> dict[str, Tensor]:
    """For each trainable parameter (N, O, *shape), one sample and one output at a time.

    A sample comes twice, and only the first is differentiated: PyTorch's gradient of batch normalization is wrong for
    some layouts of a batch of one.
    """
    rows = [_rows(problem, problem(problem.sample(n, 2))[:1]) for n in range(_count(problem))]
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def whole_jacobian(problem: Problem) -> dict[str, Tensor]:
    """The same from one pass over the batch, for networks whose samples influence each other."""
    outputs = problem(problem.inputs)
    flat = _rows(problem, outputs.reshape(1, -1))
    return {name: rows.reshape(*outputs.shape, *rows.shape[1:]) for name, rows in flat.items()}


def gram(jacobian: dict[str, Tensor], names: list[str] | None = None) -> Tensor:
    """The kernel (N, O, N, O) of all or some parameters."""
    rows = [jacobian[name].reshape(*jacobian[name].shape[:2], -1) for name in (jacobian if names is None else names)]
    return sum(torch.einsum("nop,mqp->nomq", row, row) for row in rows)  # type: ignore[return-value]


def kernel_error(found: Tensor, expected: Tensor, whole: Tensor | None = None) -> float:
    """The largest |K_ij - K'_ij| / sqrt(K'_ii K'_jj).

    What has no gradient has no scale of its own. It is held to a millionth of the largest diagonal entry, of the
    ``whole`` kernel where this is a layer's.
    """
    n = expected.shape[0] * (expected.shape[1] if expected.ndim == 4 else 1)
    if found.shape != expected.shape:
        return float("inf")
    root, largest = (k.reshape(n, n).diagonal().sqrt() for k in (expected, expected if whole is None else whole))
    root = root.clamp(min=1e-3 * float(largest.max()))
    return float(((found - expected).reshape(n, n).abs() / (root[:, None] * root)).nan_to_num(nan=torch.inf).max())


def relative(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest entry."""
    return float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-300))


def _count(problem: Problem) -> int:
    with torch.no_grad():
        return len(problem(problem.inputs))


def _rows(problem: Problem, outputs: Tensor) -> dict[str, Tensor]:
    """The gradients of outputs (1, R), each by a call of its own: for each parameter (R, *shape)."""
    named = {name: p for name, p in problem.model.named_parameters() if p.requires_grad}
    found: dict[str, list[Tensor]] = {name: [] for name in named}
    for value in outputs[0]:
        gradients = torch.autograd.grad(value, list(named.values()), retain_graph=True, allow_unused=True)
        for (name, parameter), gradient in zip(named.items(), gradients, strict=True):
            found[name].append(torch.zeros_like(parameter) if gradient is None else gradient)
    return {name: torch.stack(rows) for name, rows in found.items()}


def _kernels(problem: Problem, jacobian: dict[str, Tensor], errors: dict[str, float]) -> None:
    model, inputs, options = problem.model, problem.inputs, {"output": problem.output}
    kernel = tangentlab.ntk(model, inputs, **options)
    assert jacobian, "a kernel without gradients"
    expected = gram(jacobian)
    outputs = expected.shape[1]
    errors["full kernel"] = kernel_error(kernel, expected)
    pseudo = expected.sum((1, 3)) / outputs
    errors["pseudo-kernel"] = kernel_error(tangentlab.ntk(model, inputs, readout="pntk", **options), pseudo)
    reference = tangentlab.reference.jacobian(model, inputs, **options)
    errors["reference"] = kernel_error(gram(reference), expected)
    layers: dict[str, Tensor] = tangentlab.ntk(model, inputs, per_layer=True, **options)
    errors["sum of layers"] = kernel_error(torch.stack(list(layers.values())).sum(0), expected)
    parts = _by_layer(jacobian, layers)
    errors["layers"] = max(kernel_error(layers[name], own, expected) for name, own in parts.items())


def _by_layer(jacobian: dict[str, Tensor], layers: dict[str, Tensor]) -> dict[str, Tensor]:
    """The kernel of each layer: of the parameters that its module holds itself; at the top, of each parameter."""
    names: dict[str, list[str]] = {layer: [] for layer in layers}
    for parameter, rows in jacobian.items():
        layer = parameter.partition(".parametrizations.")[0].rpartition(".")[0] or parameter
        if ".parametrizations." in parameter:
            layer = parameter.partition(".parametrizations.")[0]
        if rows.any():  # one that the outputs do not depend on may be left out
            names.setdefault(layer, []).append(parameter)
    missing = [layer for layer in names if layer not in layers]
    assert not missing, f"layers without a kernel: {missing}"
    zero = torch.zeros_like(next(iter(layers.values())))
    return {layer: gram(jacobian, own) if own else zero for layer, own in names.items()}


def _linearization(problem: Problem, jacobian: dict[str, Tensor], errors: dict[str, float]) -> None:
    """f0 + J d for a displacement d of every trainable weight, and the gradient J^T c for weights c of the outputs."""
    linearized = tangentlab.linearize(problem.model)
    generator = torch.Generator().manual_seed(2)

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator, dtype=torch.float64)

    with torch.no_grad():
        expected = problem(problem.inputs)
    displacement = {name: 0.1 * draw(rows[0, 0]) for name, rows in jacobian.items()}
    named = dict(linearized.named_parameters())
    with torch.no_grad():
        for name, step in displacement.items():
            named[name].add_(step)
            expected = expected + (jacobian[name] * step).reshape(*expected.shape, -1).sum(2)
    outputs = problem(problem.inputs, linearized)
    assert jacobian, "a linearization without gradients"
    errors["linearization"] = relative(outputs.detach(), expected)
    cotangent = draw(outputs)
    found = torch.autograd.grad(outputs, [named[name] for name in jacobian], cotangent, allow_unused=True)
    wanted = {name: torch.einsum("no,no...->...", cotangent, rows) for name, rows in jacobian.items()}
    largest = max(float(gradient.abs().max()) for gradient in wanted.values())
    errors["gradients of the linearization"] = max(
        float(((torch.zeros_like(gradient) if own is None else own) - gradient).abs().max()) / largest
        for own, gradient in zip(found, wanted.values(), strict=True)
    )
