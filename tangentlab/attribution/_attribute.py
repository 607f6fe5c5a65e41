"""Attribution in one call."""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab._copying import copy_model
from tangentlab._errors import TangentError
from tangentlab._files import write_bytes
from tangentlab._progress import progress_bar
from tangentlab._reading import Unreadable
from tangentlab._suggestions import did_you_mean
from tangentlab._tensor_files import load_numpy, load_weights
from tangentlab.attribution._checks import check_memory
from tangentlab.attribution._exact import Exact
from tangentlab.attribution._folders import discarded_if_refused, network_hash, open_folder
from tangentlab.attribution._gradient import Gradient
from tangentlab.attribution._method import Method, Part
from tangentlab.attribution._representer import Representer
from tangentlab.attribution._request import Request, Side
from tangentlab.attribution._result import KIND, Attribution, write_scores
from tangentlab.attribution._trak import Trak
from tangentlab.kernels.internal import ParametersLike, all_finite
from tangentlab.store.internal import Digest

METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (Exact, Trak, Gradient, Representer)}


def attribute(
    models: nn.Module | Sequence[nn.Module],
    train: Any,
    test: Any,
    method: str | Method = "trak",
    *,
    targets: Any = None,
    test_targets: Any = None,
    checkpoints: Iterable[Any] | None = None,
    parameters: ParametersLike = None,
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    memory_budget: int | float | str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    check: bool = True,
) -> Attribution:
    """Find out which training samples made a network's predictions: a score of each for each test sample.

    Positive scores are those of samples that help: they raise the margin, or the output of the class, or lower the
    loss. What exactly a score is, and what it costs, is the method's:

    - ``"trak"`` (:class:`Trak`): a linear model in sketched gradients; any number of samples, several checkpoints.
    - ``"exact"`` (:class:`Exact`): leave-one-out of kernel regression without an approximation; up to about 20,000
      training samples.
    - ``"gradient"`` (:class:`Gradient`): inner products or cosines of loss gradients, TracIn over checkpoints.
    - ``"representer"`` (:class:`Representer`): the terms of the prediction of kernel regression.

    Cost: that of the method for each checkpoint, and 4 M N bytes for the scores, 8 M N for several checkpoints.

    Args:
        models: A network in evaluation mode, or several: checkpoints or seeds whose scores are averaged.
        train: N training samples, as for :func:`tangentlab.ntk`.
        test: M test samples.
        method: A name, or an object with options such as ``attribution.Trak(k=4096)``.
        targets: Targets of the training samples, in place of those of a Dataset.
        test_targets: Targets of the test samples; predicted classes to explain predictions.
        checkpoints: State dicts, or files of them, that are loaded into the one model in ``models``, one at a time.
        parameters: Which parameters count, as for :func:`tangentlab.ntk`, like all arguments that are not listed.
        out: A folder for the scores. Each finished checkpoint is kept there; rerun to resume. ``Attribution.load``
            opens it.
        progress: Whether to show progress bars; None shows them on a terminal.

    Returns:
        The scores, (M, N), with ``top``, ``to_pandas``, ``picture`` and ``save``.

    Raises:
        TangentError: Missing or unfitting targets, an empty set of samples, networks that do not fit the samples,
            scores that are not finite, or a folder of another attribution.

    Examples:
        >>> import torch
        >>> from tangentlab import attribution
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> trak = attribution.Trak(k=16)
        >>> result = attribution.attribute(network, x, x[:3], trak, targets=y, test_targets=y[:3], progress=False)
        >>> result.scores.shape
        torch.Size([3, 20])
        >>> len(result.top(0, 5).indices)
        5

    See also:
        :func:`tangentlab.attribution.lds`, :func:`tangentlab.attribution.retrain`,
        :class:`tangentlab.attribution.Trak`, :class:`tangentlab.attribution.Exact`.
    """
    chosen = _method(method)
    networks = _networks(models, checkpoints)
    factors = chosen.coefficients(len(networks))
    request = Request(
        Side("train", train, targets, input, networks.first),
        Side("test", test, test_targets, input, networks.first),
        {
            "parameters": parameters,
            "output": output,
            "dtype": dtype,
            "device": device,
            "batch_size": batch_size,
            "memory_budget": memory_budget,
            "check": check,
            "progress": progress,
        },
    )
    tests, samples = len(request.test), len(request.train)
    check_memory(
        f"The scores of {samples:,} training samples for {tests:,} test samples need",
        4 * tests * samples * min(2, len(networks)),
        memory_budget,
        "Attribute fewer test samples at a time; with attribution.Trak(features=FOLDER), the features are kept.",
    )
    place = None if out is None else _open(out, chosen, networks, request)
    total: Tensor | None = None
    weights: Tensor | None = None
    with discarded_if_refused(place), progress_bar("Attribution", len(networks), progress) as tick:
        for number, factor in enumerate(factors):
            part = _part(chosen, networks, request, number, place)
            total = part.scores.mul_(factor) if total is None else total.add_(part.scores, alpha=factor)
            if part.weights is not None:
                own = part.weights / len(networks)
                weights = own if weights is None else weights + own
            tick()
    assert total is not None
    if weights is not None:
        total *= weights.to(total)
    known = request.train.known_targets(), request.test.known_targets()
    result = Attribution(total, chosen.describe(), len(networks), *known)
    if place is not None:
        write_scores(place, result)
    return result


@dataclass(frozen=True)
class _Networks:
    """Networks that are loaded when they are needed."""

    models: Sequence[nn.Module]
    checkpoints: Sequence[Any] | None

    @property
    def first(self) -> nn.Module:
        return self.models[0]

    def __len__(self) -> int:
        return len(self.models) if self.checkpoints is None else len(self.checkpoints)

    def __getitem__(self, number: int) -> nn.Module:
        if self.checkpoints is None:
            return self.models[number]
        checkpoint = self.checkpoints[number]
        state = checkpoint if isinstance(checkpoint, Mapping) else _load(checkpoint)
        model = copy_model(self.first)
        try:
            model.load_state_dict(dict(state))
        except (RuntimeError, TypeError, AttributeError) as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise TangentError(
                f"Checkpoint {number} does not fit the model: {lines[min(1, len(lines) - 1)][:200]}",
                remedy="Pass state dicts of this model; of a dictionary with more in it, the part that is the state "
                "dict.",
            ) from error
        return model

    def __iter__(self) -> Iterator[nn.Module]:
        return (self[number] for number in range(len(self)))


def _networks(models: Any, checkpoints: Iterable[Any] | None) -> _Networks:
    several = [models] if isinstance(models, nn.Module) else models
    if not isinstance(several, Sequence) or not all(isinstance(model, nn.Module) for model in several):
        raise TangentError(
            f"The models are of type {type(models).__name__}.", remedy="Pass a torch.nn.Module, or a list of them."
        )
    if checkpoints is None:
        if not several:
            raise TangentError("There are no models.", remedy="Pass at least one.")
        return _Networks(several, None)
    states = list(checkpoints)
    if len(several) != 1 or not states:
        raise TangentError(
            f"There are {len(several)} models and {len(states)} checkpoints.",
            "Checkpoints are loaded into one model.",
            "Pass one model and at least one checkpoint, or several models.",
        )
    return _Networks(several, states)


def _load(file: Any) -> Any:
    if not isinstance(file, str | os.PathLike):
        raise TangentError(
            f"A checkpoint is of type {type(file).__name__}.", remedy="Pass state dicts, or files of state dicts."
        )
    path = Path(file).expanduser()
    try:
        return load_weights(path)
    except Unreadable as error:
        raise TangentError(f"The checkpoint {path} {error}.", remedy="Pass a file of a state dict.") from error


def _method(method: str | Method) -> Method:
    if isinstance(method, Method):
        return method
    if method not in METHODS:
        names = ", ".join(map(repr, METHODS))
        raise TangentError(
            f"There is no method {method!r}.",
            remedy=f"{did_you_mean(method, METHODS)}Use one of {names}, or an object such as Trak().",
        )
    return METHODS[method]()


def _open(out: str | os.PathLike[str], method: Method, networks: _Networks, request: Request) -> Path:
    """Create the folder, or compare what it belongs to."""
    kept = ("parameters", "output", "dtype")
    facts = {
        "method": method.describe(),
        "checkpoints": len(networks),
        "tests": len(request.test),
        "samples": len(request.train),
        "networks": [network_hash(model) for model in networks],
        "train": request.train.digest,
        "test": request.test.digest,
        "options": Digest()([getattr(method, "readout", None), *(request.options[name] for name in kept)]),
    }
    return open_folder(out, KIND, facts)


def _part(method: Method, networks: _Networks, request: Request, number: int, place: Path | None) -> Part:
    """Return what one checkpoint contributes: from the folder, or computed and then kept there."""
    path = None if place is None else place / f"checkpoint-{number:03d}.npz"
    if path is not None and path.exists():
        try:
            content = load_numpy(path)
            assert isinstance(content, dict)
            if content["scores"].shape == (len(request.test), len(request.train)):
                return Part(content["scores"], content.get("weights"))
            raise Unreadable("holds scores of other samples")
        except (Unreadable, KeyError) as error:
            warnings.warn(f"{path} {error}. It is computed again.", stacklevel=3)
            os.replace(path, path.with_suffix(".npz.damaged"))
    part = method.part(networks[number], request, number, place)
    scores = part.scores.detach().cpu()
    if not all_finite(scores):
        raise TangentError(
            f"The scores of checkpoint {number} are NaN or infinite.",
            "A gradient or a value of the readout is too large for the precision, or the system is singular.",
            "Compute in dtype=torch.float64, or pass a larger ridge.",
        )
    part = Part(scores if scores.dtype.itemsize >= 4 else scores.float(), part.weights)
    if path is not None:
        arrays = {name: value.numpy() for name, value in part._asdict().items() if value is not None}
        write_bytes(path, lambda file: np.savez(file, **cast(Any, arrays)))
    return part
