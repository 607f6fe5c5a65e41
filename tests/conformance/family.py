"""A family of networks as data: how to build a small one, what to feed it, and what is expected of it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab import TangentError

SAMPLES = 5
OUTPUTS = 3
"""Outputs a sample that are compared."""


@dataclass(frozen=True)
class Problem:
    """A network, its samples, and the part of what it returns that is differentiated.

    Attributes:
        model: In evaluation mode; the tests convert it to float64.
        inputs: As for :func:`tangentlab.ntk`: a tensor, a tuple or a dict.
        output: A linear map from what the model returns to (N, O), so that it commutes with the linearization.
    """

    model: nn.Module
    inputs: Any
    output: Callable[[Any], Tensor]

    def to(self, dtype: torch.dtype) -> "Problem":
        """Model and floating-point inputs in another precision."""
        return Problem(self.model.to(dtype), convert(self.inputs, dtype), self.output)

    def sample(self, n: int, times: int = 1) -> Any:
        """One sample as a batch of one, or of itself several times."""
        return each_tensor(self.inputs, lambda tensor: tensor[[n] * times])

    def __call__(self, inputs: Any, model: nn.Module | None = None) -> Tensor:
        """The outputs (N, O) of this model, or of another one that is called like it."""
        model = self.model if model is None else model
        if isinstance(inputs, Mapping):
            return self.output(model(**inputs))
        return self.output(model(*inputs) if isinstance(inputs, tuple) else model(inputs))


@dataclass(frozen=True)
class Refusal:
    """A refusal that is allowed, because what it says is true.

    Attributes:
        match: Words of the error.
        because: What about the network makes it true.
        evidence: Shows it without the package's help.
        certain: Whether it is refused always; else the numbers may be right instead.
    """

    match: str
    because: str
    evidence: Callable[[Problem], bool]
    certain: bool = True

    def describes(self, error: TangentError) -> bool:
        return self.match in error.what and bool(error.why) and bool(error.remedy)


@dataclass(frozen=True)
class Family:
    """One entry of the registry.

    Attributes:
        kind: The file it is in.
        name: Its own name.
        build: Makes the problem, after the random seed is set.
        fast: Whether it belongs to the subset that every run of the tests includes.
        package: The package it comes from, where tests are skipped without it.
        refusal: Why there is no kernel, where there is none.
        linearization_refusal: Why there is no linearization, where there is none.
    """

    kind: str
    name: str
    build: Callable[[], Problem]
    fast: bool = False
    package: str = "transformers"
    refusal: Refusal | None = None
    linearization_refusal: Refusal | None = None

    def problem(self) -> Problem:
        """The network in float64 with generic weights: a fresh initialization has zero biases and even attention."""
        torch.manual_seed(0)
        problem = self.build()
        stir(problem.model)
        problem.model.eval()
        return problem.to(torch.float64)


def stir(model: nn.Module, size: float = 0.1) -> None:
    """Add noise to every parameter, and give running statistics generic values."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point():
                parameter.add_(size * torch.randn(parameter.shape, generator=generator).to(parameter))
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase) and module.running_mean is not None:
                module.running_mean.add_(size * torch.randn(module.running_mean.shape, generator=generator))
                module.running_var.mul_(0.5 + torch.rand(module.running_var.shape, generator=generator))


def summary(tensor: Tensor) -> Tensor:
    """A few numbers per sample, (N, O), in which every entry of an output (N, ...) has a weight of its own."""
    flat = tensor.flatten(1)
    index = torch.arange(flat.shape[1], dtype=torch.float64)[:, None]
    frequency = torch.arange(1, OUTPUTS + 1, dtype=torch.float64)
    basis = torch.cos(1.7 * frequency * (index + 0.3)) / flat.shape[1] ** 0.5
    return flat @ basis.to(flat)


def part(name: str) -> Callable[[Any], Tensor]:
    """The ``output=`` of a model that returns a structure: a summary of one of its fields."""
    return lambda result: summary(getattr(result, name))


def each_tensor(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure with every tensor changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: each_tensor(item, change) for key, item in value.items()}
    return tuple(each_tensor(item, change) for item in value) if isinstance(value, tuple) else value


def convert(inputs: Any, dtype: torch.dtype) -> Any:
    """The inputs with floating-point tensors in that precision."""
    return each_tensor(inputs, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


def noise(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers that do not depend on what was drawn before."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def samples_mix(problem: Problem) -> bool:
    """Whether a sample's outputs depend on what else is in the batch."""
    with torch.no_grad():
        together = problem(problem.inputs)
        alone = torch.cat([problem(problem.sample(n)) for n in range(len(together))])
    return float((together - alone).norm()) > 1e-6 * float(alone.norm())


def autograd_fails(problem: Problem) -> bool:
    """Whether PyTorch itself gives no gradient of the outputs."""
    parameters = [parameter for parameter in problem.model.parameters() if parameter.requires_grad]
    try:
        torch.autograd.grad(problem(problem.inputs).sum(), parameters, allow_unused=True)
    except Exception:
        return True
    return False


def autograd_fails_twice(problem: Problem) -> bool:
    """Whether PyTorch gives no derivative of a gradient, or one that leaves a part out."""
    parameters = [parameter for parameter in problem.model.parameters() if parameter.requires_grad]
    outputs = problem(problem.inputs)
    probe = torch.ones_like(outputs, requires_grad=True)
    try:
        pulled = torch.autograd.grad(outputs, parameters, probe, create_graph=True, allow_unused=True)
        used = [g for g in pulled if g is not None and g.requires_grad]
        pushed = torch.autograd.grad(used, probe, [torch.ones_like(g) for g in used])[0]
    except RuntimeError:
        return True
    direct = float(sum(g.sum() for g in pulled if g is not None))
    return abs(float(pushed.sum()) - direct) > 1e-6 * abs(direct)


def cannot_be_copied(problem: Problem) -> bool:
    """Whether ``copy.deepcopy`` refuses a network that has been called."""
    problem(problem.inputs)
    try:
        copy.deepcopy(problem.model)
    except RuntimeError:
        return True
    return False


def outputs_are_random(problem: Problem, calls: int = 50) -> bool:
    """Whether some of many calls give other results than the first, on these inputs or on larger ones.

    Larger inputs make the gates of experts differ more.
    """
    larger = each_tensor(problem.inputs, lambda tensor: 30 * tensor if tensor.is_floating_point() else tensor)
    with torch.no_grad():
        for inputs in (problem.inputs, larger):
            first = problem(inputs)
            if any(not torch.equal(first, problem(inputs)) for _ in range(calls)):
                return True
    return False


def outputs_are_nan(problem: Problem) -> bool:
    """Whether a plain call gives NaN."""
    with torch.no_grad():
        return bool(problem(problem.inputs).isnan().any())


def gradients_are_nan(problem: Problem) -> bool:
    """Whether PyTorch's gradient of finite outputs is NaN."""
    parameters = [parameter for parameter in problem.model.parameters() if parameter.requires_grad]
    outputs = problem(problem.inputs)
    found = torch.autograd.grad(outputs.sum(), parameters, allow_unused=True)
    return bool(outputs.isfinite().all()) and any(g is not None and bool(g.isnan().any()) for g in found)


def hooks_hold_the_network(problem: Problem) -> bool:
    """Whether a backward hook closes over a module of the network."""
    modules = list(problem.model.modules())
    hooks = [hook for module in modules for hook in module._backward_hooks.values()]
    cells = [cell.cell_contents for hook in hooks for cell in getattr(hook, "__closure__", None) or ()]
    return any(content is module for content in cells for module in modules)
