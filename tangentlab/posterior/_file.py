"""Posteriors in files."""

import hashlib
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._files import write_bytes
from tangentlab._reading import Unreadable
from tangentlab._tensor_files import load_torch
from tangentlab.posterior._dense import restore_dense
from tangentlab.posterior._evidence import Hyperparameters
from tangentlab.posterior._features import restore_features
from tangentlab.posterior._independent import restore_independent
from tangentlab.posterior._posterior import Posterior
from tangentlab.posterior._tangent import Tangent

_FORMAT = "tangentlab posterior 1"
_RESTORE = {"Dense": restore_dense, "Independent": restore_independent, "Features": restore_features}


def write(path: str | os.PathLike[str], posterior: Posterior) -> None:
    """Write a posterior; the file appears whole or not at all."""
    form = posterior._form
    content = {
        "format": _FORMAT,
        "kind": type(form).__name__,
        "form": _placed(form.state(), torch.device("cpu")),
        "samples": form.samples,
        "outputs": form.outputs,
        "readout": form.tangent.readout,
        "parameters": list(form.tangent.parameters),
        "dtype": str(form.tangent.dtype).removeprefix("torch."),
        "network": _digest(form.tangent.model),
        "likelihood": posterior.likelihood,
        "precision": posterior.prior_precision,
        "noise": posterior.noise,
        "evidence": posterior.log_marginal_likelihood,
        "about": posterior.about,
        "coefficients": _placed(posterior._coefficients, torch.device("cpu")),
    }
    write_bytes(Path(path), lambda file: torch.save(content, file))


def load(path: str | os.PathLike[str], model: nn.Module, **options: Any) -> Posterior:
    """Read a posterior that :meth:`Posterior.save` wrote.

    Cost: reading the file, 8 (N O)^2 bytes and the samples for an exact full kernel, and hashing the weights.

    Args:
        path: The file.
        model: The network that it was fitted for, with the same weights.
        options: ``output``, ``input``, ``device``, ``batch_size`` and ``memory_budget`` as for :func:`fit`.

    Raises:
        TangentError: The file is damaged or something else, or the network has other weights.

    Examples:
        >>> import torch
        >>> from tangentlab import posterior
        >>> _ = torch.manual_seed(0)
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> belief = posterior.fit(network, x, y, prior_precision=1.0, progress=False)
        >>> path = belief.save("posterior.pt")
        >>> posterior.load("posterior.pt", network).predict_proba(x[:3]).shape
        torch.Size([3, 2])

    See also:
        :func:`tangentlab.posterior.fit`.
    """
    place = Path(path)
    try:
        content = load_torch(place)
    except Unreadable as error:
        raise TangentError(f"{place} {error}.", "", "Write it again with Posterior.save.") from error
    if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("kind") not in _RESTORE:
        raise TangentError(f"{place} is not a posterior.", "", "Give a file that Posterior.save wrote.")
    dtype = getattr(torch, content["dtype"])
    tangent = Tangent(model, content["readout"], parameters=content["parameters"], dtype=dtype, **options)
    if _digest(tangent.model) != content["network"]:
        raise TangentError(
            f"{place} was fitted for a network with other weights.",
            "The posterior is around the weights that the network had.",
            "Load those weights into the model first.",
        )
    chosen = Hyperparameters(content["precision"], content["noise"])
    state = _placed(content["form"], tangent.device)
    form = _RESTORE[content["kind"]](tangent, state, content["samples"], content["outputs"], chosen.ridge)
    coefficients = _placed(content["coefficients"], tangent.device)
    return Posterior(form, content["likelihood"], chosen, coefficients, content["evidence"], content["about"])


def _placed(value: Any, device: torch.device) -> Any:
    """Return tensors in nested containers on a device."""
    if isinstance(value, Tensor):
        return value.detach().to(device)
    if isinstance(value, dict):
        return {key: _placed(part, device) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_placed(part, device) for part in value)
    return value


def _digest(model: nn.Module) -> str:
    """Return a hash of the names and values of all parameters and buffers."""
    found = hashlib.sha256()
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
