"""``explore``: from a network and samples, or from a kernel, to everything that the page shows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_weights
from tangentlab.explorer._exploration import Exploration
from tangentlab.explorer._labels import Labels, make_labels
from tangentlab.explorer._network import directions_of, linear_outputs, outputs_of
from tangentlab.explorer._shown import make_shown
from tangentlab.explorer._similar import nearest_inputs
from tangentlab.explorer._state import Choices, State, layers_of, make_state
from tangentlab.explorer._training import changes
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import Samples, refuse_shuffled

_HEAT_BYTES = 2_100_000
"""Bytes of all heat maps on a page, in the coarser of two precisions."""
_MAPPED = 2000
"""Up to so many samples the map is made by t-SNE unless another is asked for."""
_INPUT_DISTANCES = 20_000
"""Up to so many samples the nearest inputs are computed."""


def explore(
    source: Any,
    data: Any = None,
    *,
    labels: Any = None,
    classes: Sequence[Any] | None = None,
    names: Sequence[Any] | None = None,
    show: Any = None,
    decode: Callable[[list[int]], str] | None = None,
    model: nn.Module | None = None,
    checkpoints: Mapping[Any, Any] | None = None,
    now: str = "trained",
    k: int = 50,
    ridge: float | str = "loo",
    embedding: str | None = None,
    layers: bool = True,
    nads: bool = True,
    title: str = "",
    progress: bool | None = None,
    **options: Any,
) -> Exploration:
    """Compute everything that the explorer shows of a kernel: a page of linked views, for browsers and notebooks.

    Examples:
        >>> import tangentlab
        >>> digits = tangentlab.data.load("digits", n_train=30, n_test=10)
        >>> network = tangentlab.models.build("mlp", input_shape=digits.input_shape, outputs=10, hidden=(8,), seed=0)
        >>> page = tangentlab.explore(network, digits.train, classes=digits.classes, progress=False)
        >>> page.save("explorer.html").name
        'explorer.html'

    See also:
        :func:`tangentlab.ntk`, :func:`tangentlab.plot.kernel`.

    Args:
        source: A network, whose kernel is computed; or a kernel (N, N), in memory or stored. One with several rows per
            sample, (N, R, N, R), is summed over them.
        data: The N samples, as :func:`tangentlab.ntk` takes them. For a kernel they are only shown and may be missing;
            texts are welcome.
        labels: Class indices (N,), or real targets (N,) or (N, L). By default those that come with the samples.
        classes: Names of the classes.
        names: Names of the samples.
        show: What to show in place of the inputs: images, texts, or rows of numbers, one per sample.
        decode: Turns a list of token numbers into a text, for instance ``tokenizer.decode``.
        model: For a kernel, the network that it belongs to, whose outputs are shown.
        checkpoints: Earlier weights of the network by name, the first ones first: state dicts, files of them, or
            networks. The weights that the network has now are the last checkpoint.
        now: The name of that last checkpoint.
        k: Eigenfunctions that are shown.
        ridge: Of the leave-one-out regression: a number, or ``"loo"`` for the best one.
        embedding: Of the map: ``"tsne"``, the default up to 2,000 samples, or ``"pca"`` (kernel PCA).
        layers: Whether to compute every layer's part of the kernel.
        nads: Whether to compute neural anisotropy directions, for networks of images.
        title: Title of the page.
        progress: Whether to show a progress bar; None for "on a terminal".
        options: For :func:`tangentlab.ntk`: ``readout`` (by default ``"pntk"``), ``dtype``, ``memory_budget`` ...

    Returns:
        The exploration: :meth:`~tangentlab.explorer.Exploration.save` writes one HTML file.

    Raises:
        TangentError: Samples, labels and kernel do not fit each other, or a kernel would be wrong.

    Cost per checkpoint: the kernel and, up to 4,096 samples, an eigendecomposition of 10 N^3 operations.
    """
    network = source if isinstance(source, nn.Module) else None
    if network is None and (options or checkpoints):
        given = ", ".join([*options, *(["checkpoints"] if checkpoints else [])])
        raise TangentError(f"{given} was given with a kernel.", "It would be ignored.", "Pass the network instead.")
    if network is not None and model is not None:
        raise TangentError("model= was given with a network.", "It belongs to a kernel.", "Leave it out.")
    refuse_shuffled(data, "data", "The samples are read several times, and each time they come in another order.")
    kernel = None if network is not None else as_matrix(source)
    count = _count(network, kernel, data, options)
    known = make_labels(_own_labels(data) if labels is None else labels, classes, count)
    shown = make_shown(data, show, decode, names, count)
    networks = [] if network is None else _networks(network, checkpoints, now)
    states_wanted = max(1, len(networks))
    choices = Choices(
        known,
        _positive(k),
        ridge,
        embedding or ("tsne" if count <= _MAPPED else "pca"),
        heat_samples(known, count, states_wanted),
    )
    states: list[State] = []
    with progress_bar("explore", states_wanted, progress) as tick:
        if kernel is not None:
            fields = make_state("", kernel, choices)
            if model is not None:
                fields["outputs"] = outputs_of(model, data, known, {})
            states.append(State(**fields))
            tick(1)
        for name, one in networks:
            start = states[-1].places if states else None
            states.append(_of_network(name, one, data, choices, start, layers, {"readout": "pntk", **options}))
            tick(1)
    if len(networks) > 1:
        first = networks[0][1]
        states = [
            replace(state, linear=linear_outputs(first, one, data, options))
            for state, (_, one) in zip(states, networks, strict=True)
        ]
    if nads and networks:
        states = _with_directions(states, networks, data)
    near = nearest_inputs(shown.features) if shown.features is not None and count <= _INPUT_DISTANCES else None
    what = type(network or model).__name__ if network is not None or model is not None else "a kernel"
    return Exploration(
        title or f"The tangent kernel of {what}",
        shown,
        known,
        tuple(states),
        tuple(changes(states, known)) if len(states) > 1 else (),
        near,
        choices.heat,
        choices.embedding,
        str(options.get("readout", "pntk")) if network is not None else "",
    )


def as_matrix(kernel: Any) -> Any:
    """Return a kernel with one row per sample; one in memory with several, (N, R, N, R), is summed over them.

    Raises:
        TangentError: It is not a kernel of samples.
    """
    if hasattr(kernel, "plan") and hasattr(kernel, "read"):
        if kernel.plan.samples != kernel.shape[0]:
            raise TangentError(
                f"The stored kernel has {kernel.shape[0] // kernel.plan.samples} rows per sample.",
                "The explorer shows one.",
                'Store a kernel with readout="pntk" or "trace".',
            )
        return kernel
    if not hasattr(kernel, "shape"):
        raise TangentError(
            f"There is nothing to explore in {type(kernel).__name__}.",
            remedy="Pass a network and samples, a kernel (N, N), or a stored kernel.",
        )
    matrix = torch.as_tensor(kernel).detach()
    if matrix.ndim == 4 and matrix.shape[:2] == matrix.shape[2:]:
        matrix = matrix.diagonal(dim1=1, dim2=3).sum(-1)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] < 3:
        raise TangentError(
            f"The kernel has the shape {tuple(matrix.shape)}.", remedy="Pass (N, N) of at least three samples."
        )
    return matrix


def heat_samples(labels: Labels | None, count: int, states: int) -> Tensor:
    """Choose the samples on the heat map: all, or as many as fit the page, evenly from every class."""
    most = int((2 * _HEAT_BYTES / states) ** 0.5)
    if count <= most:
        return torch.arange(count)
    order = torch.arange(count) if labels is None or labels.classes is None else labels.classes.argsort(stable=True)
    return order[torch.linspace(0, count - 1, most).round().long()].sort().values


def _positive(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int) or k < 2:
        raise TangentError(f"k={k!r}.", remedy="Pass the number of eigenfunctions, at least 2.")
    return k


def _count(network: nn.Module | None, kernel: Any, data: Any, options: Mapping[str, Any]) -> int:
    if kernel is not None:
        count = int(kernel.shape[0])
        there = _length(data)
        if there is not None and there != count:
            raise TangentError(
                f"The kernel is of {count:,} samples, and there are {there:,}.", remedy="Pass the kernel's samples."
            )
        return count
    if data is None:
        raise TangentError("The samples are missing.", "A kernel needs them.", "Call explore(network, data).")
    device = next((p.device for p in network.parameters()), torch.device("cpu")) if network is not None else None
    assert device is not None
    count = len(Samples(data, device=device, model=network, input=options.get("input")))
    if count < 3:
        raise TangentError(f"There are {count} samples.", "There is nothing to compare.", "Pass at least three.")
    return count


def _length(data: Any) -> int | None:
    if data is None:
        return None
    if isinstance(data, Mapping):
        return len(next(iter(data.values())))
    return len(data) if hasattr(data, "__len__") else None


def _own_labels(data: Any) -> Any:
    """Return the labels that come with samples: those of an image data set, or the second parts of a Dataset."""
    labels = getattr(data, "labels", None)
    if isinstance(labels, Tensor):
        return labels
    if isinstance(data, Tensor | Mapping | list | tuple) or not hasattr(data, "__getitem__"):
        return None
    items = [data[i] for i in range(len(data))]
    if not all(isinstance(item, tuple | list) and len(item) == 2 for item in items):
        return None
    second = [torch.as_tensor(item[1]) for item in items]
    return torch.stack(second) if all(part.ndim == 0 for part in second) else None


def _networks(model: nn.Module, checkpoints: Mapping[Any, Any] | None, now: str) -> list[tuple[str, nn.Module]]:
    """Return the network at every checkpoint with its name, the present weights last."""
    found = []
    for name, weights in (checkpoints or {}).items():
        if isinstance(weights, nn.Module):
            weights = weights.state_dict()
        elif not isinstance(weights, Mapping):
            try:
                weights = load_weights(Path(weights))
            except Unreadable as error:
                raise TangentError(f"{weights} {error}.", remedy="Pass a file of a state dict.") from error
        twin = copy_model(model)
        try:
            twin.load_state_dict(weights)
        except (RuntimeError, TypeError, AttributeError) as error:
            raise TangentError(
                f"The checkpoint {name!r} does not fit the network.",
                str(error).splitlines()[0],
                "Pass state dicts of the same network.",
            ) from error
        found.append((str(name), twin))
    return [*found, (now if found else "", model)]


def _of_network(
    name: str,
    model: nn.Module,
    data: Any,
    choices: Choices,
    start: Tensor | None,
    layers: bool,
    options: dict[str, Any],
) -> State:
    found = ntk(model, data, per_layer=layers, progress=False, **options)
    parts = found if layers else {}
    kernel = (
        as_matrix(sum(part.double() for part in found.values()).to(next(iter(found.values())).dtype))
        if layers
        else as_matrix(found)
    )
    fields = make_state(name, kernel.cpu(), choices, start)
    fields["outputs"] = outputs_of(model, data, choices.labels, options)
    fields["layers"] = layers_of({part: as_matrix(value) for part, value in parts.items()}) if layers else ()
    return State(**fields)


def _with_directions(states: list[State], networks: list[tuple[str, nn.Module]], data: Any) -> list[State]:
    """Add the directions of the first and the last checkpoint, if samples are images."""
    shape = getattr(data, "input_shape", None) or (tuple(data.shape[1:]) if isinstance(data, Tensor) else ())
    for number in sorted({0, len(states) - 1}):
        found = directions_of(networks[number][1], tuple(shape)) if len(shape) in (2, 3) else None
        states[number] = replace(states[number], nads=found)
    return states
