"""The linearized network as a module."""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree as pytree

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab.linearized._adjoint import forward_matches_backward
from tangentlab.linearized._call_context import (
    has_wrapped_tensor,
    input_gradient_wanted,
    inside_transform,
    outside_inference_mode,
    without_function_modes,
)
from tangentlab.linearized._evaluate import evaluate
from tangentlab.linearized._forward import expand, expand_eagerly, expand_functionally
from tangentlab.linearized._point import Point
from tangentlab.linearized._policy import check_modes, watched
from tangentlab.linearized._randomness import Randomness
from tangentlab.linearized._rules import PassSettings
from tangentlab.linearized._side_effects import CallHistory, SideEffects
from tangentlab.linearized._slots import LOCK, Slots
from tangentlab.linearized._statistics import untouched
from tangentlab.linearized._tangent_mode import UnreliableForwardMode


class BasePoint(nn.Module):
    """Constant weights and buffers, which change device and type with the model.

    They are buffers of a separate module, outside the linearized model's tree, so that the names of the latter are
    exactly those of the network.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        self.names = list(tensors)
        for i, tensor in enumerate(tensors.values()):
            self.register_buffer(str(i), tensor.detach().clone())

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by the network's names."""
        buffers = self._buffers
        return {name: buffers[str(i)] for i, name in enumerate(self.names)}  # type: ignore[misc]


class Linearized(nn.Module):
    """The first-order expansion of a network in its weights. Made by :func:`tangentlab.linearize`.

    The output is f(x; theta*) + J(x; theta*) (theta - theta0), or without the first term in the unbiased form.
    ``theta`` are this module's parameters. They, the buffers and the submodules have the network's names, so that
    ``state_dict`` can be exchanged with the network in both directions. The base point theta*, the reference
    theta0 and the statistics of BatchNorm are not part of ``state_dict``; ``copy.deepcopy``, pickling and
    ``torch.save(model)`` keep them, and they follow ``to``.

    Submodules such as ``lin.fc`` hold parameters theta but run with theta*: a forward hook on one receives the
    activations of the network at its base point. ``train()`` and ``eval()`` set only the flag of this module: the
    function is the same in both modes. ``biased`` and ``batch_norm_policy`` describe its form;
    ``untouched_statistics`` names normalization layers whose running statistics were those of a new layer, mean 0 and
    variance 1 (:func:`tangentlab.linearized.estimate_statistics` estimates them on data).

    Cost: gradients with respect to parameters take one forward-mode and one reverse-mode pass, whatever the number of
    outputs. Inputs that require gradients, ``torch.func`` transforms and ``torch.compile`` are handled by
    ``torch.func.jvp``, which is slower.
    """

    biased: bool
    batch_norm_policy: str
    untouched_statistics: list[str]
    _network: nn.Module
    _base: BasePoint
    _reference: BasePoint | None
    _thawed: list[str]
    _slots: Slots
    _watched: list[nn.Module]
    _settings: PassSettings
    _history: CallHistory

    def __init__(
        self,
        network: nn.Module,
        base: BasePoint,
        reference: BasePoint | None,
        *,
        bias: bool,
        batch_norm: str,
        thawed: list[str],
    ) -> None:
        super().__init__()
        # Not "bias" and "batch_norm", which would hide parameters and modules that networks have under these names.
        self.biased = bias
        self.batch_norm_policy = batch_norm
        # The tree is the network's own. The dictionaries are shared, so that whatever replaces a parameter here
        # (to, load_state_dict, torch.func.functional_call) replaces it there. Set without nn.Module.__setattr__,
        # which would register the network as a child and prefix every name.
        own = self.__dict__
        own["_parameters"] = network._parameters
        own["_buffers"] = network._buffers
        own["_modules"] = network._modules
        own["_non_persistent_buffers_set"] = network._non_persistent_buffers_set
        own["_network"] = network
        own["_base"] = base
        own["_reference"] = reference
        own["_thawed"] = thawed  # the modules that merge() puts back into training mode
        own["_slots"] = Slots(network)
        own["_watched"] = watched(network)
        own["_settings"] = PassSettings(not any(isinstance(m, torch.jit.ScriptModule) for m in network.modules()))
        own["_history"] = CallHistory()
        own["untouched_statistics"] = untouched(network)

    # The function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the linearized output, in the structure of the network's output."""
        if torch.compiler.is_compiling() or inside_transform():
            if not self._history.compared:
                self._compare_outside(args, kwargs)
            return self._functionally(self._functional_point(), args, kwargs)
        with LOCK, outside_inference_mode():
            if input_gradient_wanted(args, kwargs):
                functional = self._functional_point()
                return self._watched_call(args, kwargs, lambda: self._functionally(functional, args, kwargs))
            point, theta = self._point(), self._slots.theta()
            return self._watched_call(args, kwargs, lambda: evaluate(point, theta, self.biased, args, kwargs))

    def _functionally(self, point: Point, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        expansion = expand_functionally(point, args, kwargs)
        return pytree.tree_unflatten(expansion.value(self.biased), expansion.structure)

    def expand(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """Compute the two terms f(x; theta*) and J(x; theta*) (theta - theta0), without gradients."""
        with LOCK, torch.inference_mode(False), torch.no_grad():
            point = self._point()
            expansion = self._watched_call(args, kwargs, lambda: expand(point, (), args, kwargs))
        primal = pytree.tree_unflatten(expansion.primal, expansion.structure)
        return primal, pytree.tree_unflatten(expansion.value(False), expansion.structure)

    def _point(self) -> Point:
        """Return base point and displacement, the latter without gradients: they are attached to the output instead."""
        theta, (weights, buffers) = self._slots.theta(), self._frozen()
        reference = weights if self._reference is None else self._reference.tensors()
        with torch.no_grad():
            displacement = {
                name: self._settings.difference(value, reference[name])
                for name, value in theta.items()
                # A frozen parameter contributes nothing, unless another value has been loaded into it.
                if value.requires_grad or not torch.equal(value, reference[name])
            }
        return Point(self._network, self._slots, weights, displacement, buffers, self._settings, self._own())

    def _base_point(self) -> Point:
        """Return the base point, whatever theta is."""
        weights, buffers = self._frozen()
        return Point(self._network, self._slots, weights, weights, buffers, self._settings, self._own())

    def _functional_point(self) -> Point:
        """Return the point for torch.func: the displacement is connected to theta, and no branch depends on a value."""
        theta, (weights, buffers) = self._slots.theta(), self._frozen()
        reference = weights if self._reference is None else self._reference.tensors()
        displacement = {name: value - reference[name] for name, value in theta.items()}
        return Point(self._network, self._slots, weights, displacement, buffers, self._settings, self._own())

    def _frozen(self) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return base weights, and the buffers that the network is run with."""
        check_modes(self._watched)
        base = self._base.tensors()
        weights = {name: base[name] for name in self._slots.parameters}
        if self.batch_norm_policy == "frozen":
            return weights, {name: base[name] for name in self._slots.buffers}
        return weights, dict(self._network.named_buffers())

    def _own(self) -> dict[int, str]:
        """Return the names of the network's tensors that are replaced during a call, by identity."""
        own = {id(value): name for name, value in self._slots.theta().items()}
        if self.batch_norm_policy == "frozen":
            own.update((id(buffer), name) for name, buffer in self._network.named_buffers())
        return own

    def _watched_call(self, args: tuple[Any, ...], kwargs: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """Run a call, refuse it if it drew random numbers or changed the network, and undo its changes."""
        if not self._slots.complete():
            raise TangentError(
                "Modules or parameters of the linearized model have been added, removed or replaced.",
                why="The linearization belongs to the original network; the new ones have no base point.",
                remedy="Change the network, then linearize it.",
            )
        effects = SideEffects(self._network, self._base, args, kwargs, thorough=not self._history.called)
        try:
            if not self._history.compared:
                self._compare(args, kwargs, effects.refuse_randomness)
            result = compute()
            self._history.harmless |= effects.check(self._history.harmless, self._base_point())
        finally:
            effects.restore()
        self._history.called = True
        return result

    @torch.compiler.disable
    def _compare_outside(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Compare forward and backward mode for a first call that is compiled or transformed."""
        if not has_wrapped_tensor(args, kwargs):
            with LOCK, temporarily_clear_interpreter_stack():
                randomness = Randomness(self._network)
                try:
                    self._compare(args, kwargs, lambda p: randomness.refuse(lambda: p.call({}, args, kwargs)))
                finally:
                    randomness.restore()

    def _compare(self, args: tuple[Any, ...], kwargs: dict[str, Any], refuse: Callable[[Point], None]) -> None:
        """Compare forward mode with a backward pass, once, hidden from active torch function modes.

        Args:
            args: The network's inputs.
            kwargs: The network's keyword inputs.
            refuse: A function that refuses a network that has used random numbers; then the result is not kept.
        """
        point, distrust = self._base_point(), self._settings.distrust
        with without_function_modes():
            try:
                if not distrust and not forward_matches_backward(point, expand_eagerly, args, kwargs):
                    distrust = "Forward mode and backward passes differ."
            except UnreliableForwardMode as reason:
                distrust = str(reason)
            refuse(point)
        self._settings.distrust = distrust
        self._history.compared = True

    # The weights

    def displacement(self) -> dict[str, Tensor]:
        """Return theta - theta0 by name, zeros included, without gradients."""
        reference = (self._base if self._reference is None else self._reference).tensors()
        return {name: value.detach() - reference[name] for name, value in self._slots.theta().items()}

    def base_state_dict(self) -> dict[str, Tensor]:
        """Return copies of the base point theta* and the buffers of the linearization, by the network's names."""
        return {name: tensor.clone() for name, tensor in self._base.tensors().items()}

    def merge(self, into: nn.Module | None = None, scale: float = 1.0) -> nn.Module:
        """Build a network with the learned displacement added to its weights: theta* + scale (theta - theta0).

        Args:
            into: A network of the same parameters to whose weights the displacement is added instead of to
                theta*. It is copied, not changed.
            scale: The factor of the displacement.

        Returns:
            A new network, in the mode that the original had when it was linearized, and with the buffers of the
            linearized model.
        """
        with torch.no_grad():
            if into is None:
                network = copy_model(self._network)
                weights, buffers = self._frozen()
                for name, tensor in [*network.named_parameters(), *network.named_buffers()]:
                    tensor.copy_(weights[name] if name in weights else buffers[name])
                for name in self._thawed:
                    network.get_submodule(name).train()
            else:
                network = copy_model(into)
            displacement = self.displacement()
            parameters = dict(network.named_parameters())
            odd = [n for n in displacement if n not in parameters or parameters[n].shape != displacement[n].shape]
            if odd:
                raise TangentError(
                    f"The network to merge into lacks {len(odd)} parameters, or has them in another shape: "
                    f"{', '.join(odd[:5])}.",
                    remedy="Give a network of the same architecture.",
                )
            for name, parameter in parameters.items():
                if name in displacement:
                    parameter.add_(displacement[name], alpha=scale)
        return network

    # Methods of nn.Module

    def train(self, mode: bool = True) -> Self:
        """Set this module's flag alone: the linearization is the same function in both modes."""
        self.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the network's state dict: same names, same extra state."""
        return self._network.state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self._network._load_from_state_dict(*args, **kwargs)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        for point in (self._base, self._reference):
            if point is not None:
                point._apply(fn)
        return self

    def extra_repr(self) -> str:
        text = f"{type(self._network).__name__}, bias={self.biased}, batch_norm={self.batch_norm_policy!r}"
        return f"{text}, BatchNorm at untouched statistics (mean 0, variance 1)" if self.untouched_statistics else text
