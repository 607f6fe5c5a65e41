"""Kernels of other optimizers than gradient descent: what a step of theirs on one sample does to another's output.

A step on sample m changes the weights by -lr u(g_m) with g_m its gradient, and the output of sample n by -lr <g_n,
u(g_m)>. Gradient descent has u(g) = g, sign descent u(g) = sign(g), a preconditioned method u(g) = D g. Such kernels
need gradients written out, entry by entry: the sign of a sum of outer products has no compact form.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tangentlab._errors import TangentError
from tangentlab.kernels._factorize import Factorizer
from tangentlab.kernels._groups import make_groups
from tangentlab.kernels._plan import Plan, Side

UpdateRule = str | Mapping[str, Tensor] | torch.optim.Optimizer | None
SIGNS = ("signgd", "asymmetric_signgd")
_Transform = Callable[[str, Tensor], Tensor]


def preconditioner(optimizer: torch.optim.Optimizer, named: Mapping[str, Tensor]) -> dict[str, Tensor]:
    r"""Return the diagonal D by which an adaptive optimizer multiplies gradients at its present state, by name.

    Adam and AdamW: :math:`D = 1 / (\sqrt{v / (1 - \beta_2^t)} + \epsilon)`; RMSprop: :math:`1 / (\sqrt{v} + \epsilon)`;
    Adagrad: :math:`1 / (\sqrt{G} + \epsilon)`. The learning rate is not part of it.

    Args:
        optimizer: After at least one step.
        named: The parameters of the model by name; those that the optimizer does not train are left out.

    Raises:
        TangentError: The optimizer keeps no second moments, or has made no step.
    """
    names = {id(parameter): name for name, parameter in named.items()}
    found: dict[str, Tensor] = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state.get(parameter, {})
            name = names.get(id(parameter))
            second = next((state[key] for key in ("exp_avg_sq", "square_avg", "sum") if key in state), None)
            if name is None or second is None:
                continue
            correction = 1.0
            if "exp_avg_sq" in state:
                correction = 1 - group["betas"][1] ** float(state["step"])
            found[name] = 1 / ((second / correction).sqrt() + group.get("eps", 0.0))
    if not found:
        raise TangentError(
            f"{type(optimizer).__name__} holds no second moments of the model's parameters.",
            why="They are the diagonal by which the kernel is preconditioned.",
            remedy="Pass Adam, AdamW, RMSprop or Adagrad after at least one step on this model's own parameters.",
        )
    return found


def transforms(rule: UpdateRule, plan: Plan) -> tuple[_Transform, _Transform]:
    """Return what is done to the gradients of the rows and to those of the columns before their product.

    Raises:
        TangentError: There is no such rule, or a preconditioner does not fit the parameters.
    """
    if rule == "signgd":
        return _sign, _sign
    if rule == "asymmetric_signgd":
        return _same, _sign
    if isinstance(rule, str) or rule is None:
        raise TangentError(
            f"There is no kernel of the optimizer {rule!r}.",
            remedy="Use 'signgd', 'asymmetric_signgd', a torch optimizer after a step, or a dict of diagonals.",
        )
    assert isinstance(rule, Mapping)
    roots: dict[str, Tensor] = {}
    for name, parameter in plan.network.parameters.items():
        diagonal = rule.get(name)
        if diagonal is None or diagonal.shape != parameter.shape or not bool((diagonal >= 0).all()):
            fault = "is missing" if diagonal is None else "has another shape or negative entries"
            raise TangentError(
                f"The preconditioner of {name!r} {fault}.",
                why="It is one nonnegative number for each entry of each parameter that counts.",
                remedy="Pass tensors of the parameters' shapes by name, or choose parameters= that it has.",
            )
        roots[name] = diagonal.detach().to(parameter).sqrt().flatten()

    def scaled(name: str, gradient: Tensor) -> Tensor:
        return gradient * roots[name]

    return scaled, scaled


def _same(name: str, gradient: Tensor) -> Tensor:
    return gradient


def _sign(name: str, gradient: Tensor) -> Tensor:
    return gradient.sign()


def transformed_kernel(plan: Plan, rule: UpdateRule) -> Tensor:
    """Compute sum_p u1(J1)_p u2(J2)_p^T, (N1, R, N2, R), some parameters at a time, in the precision of the kernel.

    Costs a pass over all samples for each portion of parameters whose gradients fit into the memory, and 2 R^2 P
    operations per pair of samples.
    """
    network, work = plan.network, plan.work
    left, right = transforms(rule, plan)
    rows, size = (work.rows, work.columns), network.readout.size
    total = torch.zeros(rows[0] * size, rows[1] * size, dtype=torch.float64, device=network.device)
    # Gradients of both sides, and their transformed copies.
    room = max(1, int(plan.memory / 4) // (sum(rows) * size * network.kernel_dtype.itemsize))
    for names in _portions({name: p.numel() for name, p in network.parameters.items()}, room):
        one = _gradients(plan, plan.left, names)
        two = one if work.symmetric else _gradients(plan, plan.right, names)
        for name in one:
            if name in two:
                total += (left(name, one[name]) @ right(name, two[name]).T).double()
    return total.to(network.kernel_dtype).view(rows[0], size, rows[1], size)


def _portions(sizes: Mapping[str, int], room: int) -> list[list[str]]:
    portions: list[list[str]] = []
    held = 0
    for name, size in sizes.items():
        if not portions or held + size > room:
            portions.append([])
            held = 0
        portions[-1].append(name)
        held += size
    return portions


def _gradients(plan: Plan, side: Side, names: list[str]) -> dict[str, Tensor]:
    """Return the gradients of some parameters, (N R, size), in the order of the parameter's own entries."""
    network, fallback = plan.network, {g.parameters[0] for g in side.groups if g.form == "fallback"}
    chosen = {name: network.parameters[name] for name in names}
    groups = [
        replace(group, plain=False, form="fallback" if group.parameters[0] in fallback else group.form)
        for group in make_groups(side.findings, chosen)
    ]
    batch = plan.budget(0).batch
    factorizer = Factorizer(network, side.findings, groups, min(batch, len(side.samples)))
    parts: dict[str, list[Tensor]] = {group.parameters[0]: [] for group in groups}
    for rows in factorizer.batches(range(len(side.samples))):
        for number, factor in factorizer.batch(side.samples, rows):
            gradient: Any = factor.g
            parts[groups[number].parameters[0]].append(gradient.flatten(0, 1))
    return {name: torch.cat(found) for name, found in parts.items() if found}


def reduced(kernel: Tensor, reduction: str) -> Tensor:
    """Return a kernel (N1, R, N2, R) in the shape of its readout."""
    if reduction == "none":
        return kernel
    classes = torch.einsum("nomo->onm", kernel)
    if reduction == "per_class":
        return classes
    return classes.sum(0)
