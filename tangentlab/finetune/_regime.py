"""Is fine-tuning in the kernel regime?"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tangentlab import analysis, linalg
from tangentlab._errors import TangentError
from tangentlab._html import card
from tangentlab.finetune._disentanglement import different_predictions
from tangentlab.finetune._probe import evaluating
from tangentlab.finetune._task_vector import TaskVector
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import logits_of
from tangentlab.linearized import linearization_error, linearize


@dataclass(frozen=True)
class KernelRegime:
    """How well the linearization at the pretrained weights describes a fine-tuned network, on N samples.

    Attributes:
        linearization_error: ||f - f0 - J0 (theta - theta0)|| / ||f - f0||, 0 if training was linear.
        agreement: The share of samples for which the linearization at the fine-tuned weights, f0 + J0 (theta - theta0),
            predicts the class that the fine-tuned network predicts.
        kernel_distance: The cosine distance of the kernels before and after, 0 if features did not change.
        regression_agreement: The share for which kernel regression at the pretrained weights does; None without
            training samples.
        accuracy: The accuracy of the fine-tuned network, the linearization and, if there is one, the regression; None
            without targets.
        holds: Whether the linearization error and the agreement are within the limits.
        limits: The largest linearization error and the smallest agreement.
    """

    linearization_error: float
    agreement: float
    kernel_distance: float
    regression_agreement: float | None
    accuracy: dict[str, float] | None
    holds: bool
    limits: tuple[float, float]

    def __str__(self) -> str:
        verdict = "in the kernel regime" if self.holds else "not in the kernel regime"
        text = (
            f"{verdict}: linearization error {self.linearization_error:.3g} (at most {self.limits[0]:g}), agreement "
            f"{self.agreement:.1%} (at least {self.limits[1]:.0%}), kernel distance {self.kernel_distance:.3g}"
        )
        if self.regression_agreement is not None:
            text += f", agreement of kernel regression {self.regression_agreement:.1%}"
        return text

    def _repr_html_(self) -> str:
        return card("Kernel regime", {"result": str(self)})


def kernel_regime(
    network: nn.Module,
    finetuned: Any,
    inputs: Any,
    targets: Tensor | None = None,
    *,
    train: tuple[Any, Tensor] | None = None,
    ridge: float = 1e-3,
    largest_error: float = 0.5,
    least_agreement: float = 0.9,
    **options: Any,
) -> KernelRegime:
    """Test whether fine-tuning stayed in the kernel regime: the network is close to its linearization at theta0.

    Malladi et al. (2023) call fine-tuning kernel behavior if the change of the outputs is linear in the change of the
    weights and the kernel stays fixed, and compare kernel regression with fine-tuning. Here the first is measured by
    the linearization error and the agreement of predictions, which decide, and the second by the kernel distance. The
    paper has no limits; those here are conventions, to be chosen before looking at results.

    Cost: the pNTKs of the samples before and after; with ``train=`` also that of the training samples, a cross kernel
    and a regression.

    Args:
        network: The pretrained network theta0. It is not changed.
        finetuned: The fine-tuned weights: a network or a state dict.
        inputs: N samples: a tensor, a tuple or a dict of tensors.
        targets: Their classes (N,), for accuracies.
        train: Training inputs and classes for kernel regression, (pNTK + ridge tr(K) / N) a = Y - f0 with one-hot Y.
        ridge: The ridge, as a share of the mean of the kernel's diagonal.
        largest_error: The largest linearization error that counts as the kernel regime.
        least_agreement: The smallest agreement that does.
        options: For :func:`tangentlab.ntk`.

    Examples:
        >>> import torch
        >>> from tangentlab import finetune, training
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> import copy
        >>> tuned = copy.deepcopy(network)
        >>> spec = training.TrainingSpec(epochs=2, batch_size=10, optimizer=training.SGD(0.1))
        >>> result = training.train(tuned, (x, y), spec)
        >>> type(finetune.kernel_regime(network, tuned, x, y, train=(x, y))).__name__
        'KernelRegime'

    See also:
        :class:`tangentlab.finetune.KernelRecorder`, :func:`tangentlab.linearized.linearization_error`.
    """
    if train is not None and train[1].is_floating_point():
        raise TangentError("The training targets are not classes.", remedy="Pass integers (N,).")
    moved = TaskVector.between(network, finetuned)
    options = {"progress": False, **options}
    start, end = moved.apply(network, 0.0), moved.apply(network)
    with evaluating(start), evaluating(end), torch.no_grad():
        linear = linearize(_Logits(start))
        own = dict(linear.named_parameters())
        for name, parameter in end.named_parameters():
            own[f"network.{name}"].copy_(parameter)
        f, f0 = _call(_Logits(end), inputs), _call(_Logits(start), inputs)
        error = _call(linearization_error, inputs, linear).overall
        predictions = {"linearization": _call(linear, inputs)}
        if train is not None:
            kernel = ntk(start, train[0], readout="pntk", **options)
            y = F.one_hot(train[1].long(), f.shape[1]).to(f)
            rho = ridge * float(kernel.diagonal().mean())
            fit = linalg.regress(kernel, y, f0=_call(_Logits(start), train[0]), ridge=rho, progress=False)
            cross = ntk(start, inputs, train[0], readout="pntk", **options)
            predictions["regression"] = fit.predict(cross, f0=f0).to(f)
        kernels = [ntk(model, inputs, readout="pntk", **options) for model in (start, end)]
    agreements = {name: 1 - float(different_predictions(f, found).mean()) for name, found in predictions.items()}
    accuracy = None
    if targets is not None:
        all_ = {"network": f, **predictions}
        accuracy = {
            name: float((found.argmax(1).cpu() == targets.cpu()).double().mean()) for name, found in all_.items()
        }
    return KernelRegime(
        error,
        agreements["linearization"],
        analysis.kernel_distance(*kernels),
        agreements.get("regression"),
        accuracy,
        error <= largest_error and agreements["linearization"] >= least_agreement,
        (largest_error, least_agreement),
    )


class _Logits(nn.Module):
    """A network that returns its logits."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return logits_of(self.network(*args, **kwargs))


def _call(function: Any, inputs: Any, *first: Any) -> Any:
    if isinstance(inputs, dict):
        return function(*first, **inputs)
    return function(*first, *(inputs if isinstance(inputs, tuple) else (inputs,)))
