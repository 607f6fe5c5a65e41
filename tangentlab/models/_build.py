"""Building a network by name, with every argument checked before anything is allocated."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean
from tangentlab.models import _lenet
from tangentlab.models._layers import ACTIVATIONS, INITS, Layers
from tangentlab.models._registry import COMMON_OPTIONS, Architecture, Option, Shape, available


def build(
    name: str,
    *,
    width: float = 1,
    input_shape: Shape | None = None,
    outputs: int = 10,
    activation: str = "relu",
    init: str = "default",
    seed: int | None = None,
    sigma_w: float | None = None,
    sigma_b: float | None = None,
    **options: Any,
) -> nn.Module:
    """Build a network of the papers by name, in training mode.

    It is an ordinary ``nn.Module`` that maps (N, C, H, W) to (N, outputs). In evaluation mode every sample is
    processed on its own, and no operation works in place.

    Cost: one random number and 4 bytes per weight.

    Args:
        name: One of :func:`available`.
        width: Factor on every channel count and hidden width, rounded, at least one unit; may be a fraction.
        input_shape: (C, H, W) of a sample; by default what the papers give this architecture.
        outputs: Number of outputs.
        activation: ``"relu"``, ``"gelu"`` (exact) or ``"gelu_tanh"`` (Flax's, ortiz2021's code).
        init: ``"default"`` for PyTorch's own (samarin2022), ``"lecun"`` for LeCun-normal weights truncated at
            two standard deviations and zero biases (ortiz2021, code), ``"ntk"`` for the NTK parameterization.
        seed: Makes the weights, which are drawn on the CPU, reproducible and leaves PyTorch's global
            generator untouched. Without it the global generator is used.
        sigma_w: Weight scale of ``init="ntk"``, sqrt(2) by default.
        sigma_b: Bias scale of ``init="ntk"``, 0.1 by default; 0 leaves the biases out.
        **options: What this architecture takes besides these; see :func:`available`.

    Raises:
        TangentError: For an unknown name or option, a value out of range, or an input that is too small.

    Examples:
        >>> from tangentlab import models
        >>> network = models.build("mlp", input_shape=(1, 8, 8), outputs=10, hidden=(32,), seed=0)
        >>> sum(p.numel() for p in network.parameters())
        2410

    See also:
        :func:`tangentlab.models.available`, :func:`tangentlab.data.load`.
    """
    architecture = _find(name)
    checked = _check_options(architecture, options)
    layers = _check_layers(activation, init, sigma_w, sigma_b)
    if isinstance(width, bool) or not (isinstance(width, int | float) and math.isfinite(width) and width > 0):
        raise TangentError(f"width={width!r} is not a positive number.", remedy="Give a factor such as 1, 2 or 0.5.")
    _check_count("outputs", outputs)
    shape = _check_shape(architecture, architecture.input_shape if input_shape is None else input_shape, checked)

    def make() -> nn.Module:
        return architecture.make(input_shape=shape, outputs=outputs, width=width, layers=layers, **checked)

    if seed is None:
        return make()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return make()


def _find(name: str) -> Architecture:
    by_name = {architecture.name: architecture for architecture in available()}
    if name not in by_name:
        raise TangentError(
            f"There is no architecture {name!r}.",
            remedy=f"{did_you_mean(str(name).lower(), list(by_name))}The names are {', '.join(by_name)}.",
        )
    return by_name[name]


def _check_options(architecture: Architecture, options: Mapping[str, Any]) -> dict[str, Any]:
    known = architecture.options
    for key in options:
        if key not in known:
            names = [*known, *COMMON_OPTIONS]
            raise TangentError(
                f"{architecture.name!r} has no option {key!r}.",
                remedy=f"{did_you_mean(key, names)}It takes {', '.join(names)}.",
            )
    checked = {key: options.get(key, option.default) for key, option in known.items()}
    for key, option in known.items():
        checked[key] = _check_value(key, checked[key], option)
    if checked.get("depth", 2) < 2:
        raise TangentError(
            f"depth={checked['depth']} leaves no hidden layer.",
            why="Depth counts weight layers and the readout is one of them.",
            remedy="Give a depth of at least 2.",
        )
    return checked


def _check_value(key: str, value: Any, option: Option) -> Any:
    if option.choices:
        _check_choice(key, value, option.choices)
    elif option.kind is bool and not isinstance(value, bool):
        raise TangentError(f"{key}={value!r} is neither True nor False.", remedy=f"{key}: {option.help}.")
    elif option.kind is int:
        _check_count(key, value)
    elif option.kind is tuple:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            raise TangentError(f"{key}={value!r} is not a list of widths.", remedy="Give, say, (100, 100).")
        value = tuple(value)
        for item in value:
            _check_count(f"every item of {key}", item)
    return value


def _check_layers(activation: str, init: str, sigma_w: float | None, sigma_b: float | None) -> Layers:
    _check_choice("activation", activation, ACTIVATIONS)
    _check_choice("init", init, INITS)
    sigmas = {key: value for key, value in (("sigma_w", sigma_w), ("sigma_b", sigma_b)) if value is not None}
    if sigmas and init != "ntk":
        raise TangentError(
            f"{' and '.join(sigmas)} given with init={init!r}.",
            why="These scales belong to the NTK parameterization and would be ignored.",
            remedy='Pass init="ntk", or leave them out.',
        )
    for key, value in sigmas.items():
        if not math.isfinite(value) or value < 0 or (key == "sigma_w" and value == 0):
            raise TangentError(f"{key}={value!r} is not a scale.", remedy="Give a positive finite number.")
    return Layers(activation, init, **sigmas)


def _check_shape(architecture: Architecture, shape: Any, options: Mapping[str, Any]) -> Shape:
    shape = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    if len(shape) != 3:
        raise TangentError(
            f"input_shape={shape!r} does not have three entries.",
            why="Inputs are images (C, H, W), without the batch.",
            remedy="Give, say, (3, 32, 32), or (1, 1, d) for vectors of d features.",
        )
    for size in shape:
        _check_count("every entry of input_shape", size)
    smallest = architecture.smallest(options)
    if min(shape[1:]) < smallest:
        hint = ""
        if options.get("variant") == "samarin2022":
            hint = f' variant="ortiz2021" takes sides from {_lenet.SMALLEST["ortiz2021"]}.'
        raise TangentError(
            f"{architecture.name!r} cannot take inputs of {shape[1]} x {shape[2]}.",
            why="Its convolutions and poolings would leave nothing of them.",
            remedy=f"The smallest input is {smallest} x {smallest}: pad the images, or take another.{hint}",
        )
    return shape


def _check_count(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TangentError(f"{what} must be a positive integer, not {value!r}.")


def _check_choice(key: str, value: Any, choices: tuple[object, ...]) -> None:
    if value not in choices:
        names = [str(choice) for choice in choices]
        raise TangentError(
            f"{key}={value!r} is not known.",
            remedy=f"{did_you_mean(str(value).lower(), names)}Choose one of {', '.join(names)}.",
        )
