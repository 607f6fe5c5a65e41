"""Which of several networks will predict best, without training them."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from tangentlab import linalg
from tangentlab._errors import TangentError
from tangentlab.forecast import at_batch_statistics, leave_one_out
from tangentlab.kernels import ntk
from tangentlab.kernels.internal import Samples


def rank_models(
    models: Mapping[str, nn.Module] | Sequence[nn.Module],
    x: Any,
    y: Any = None,
    *,
    readout: str = "pntk",
    **options: Any,
) -> pd.DataFrame:
    """Compare candidates (architectures, checkpoints, hyperparameters) by the error that their kernels predict.

    For each network, kernel regression on one-hot classes (minus their mean) with its kernel predicts every sample
    from all others, exactly; the ridge is chosen by generalized cross-validation. The networks' own outputs are not
    used, so that they may have any number. BatchNorm in training mode is evaluated at the statistics of the samples,
    and ``note`` says so.

    Cost per network: that of :func:`tangentlab.ntk`, and all eigenpairs of the kernel, about 10 N^3 operations and
    24 N^2 bytes.

    Args:
        models: Networks by name, or in order.
        x: Samples, in any form that :func:`tangentlab.ntk` takes.
        y: Classes (N,), or targets (N, L); None for those that come with the samples.
        readout: The kernel, (N, N): ``"pntk"``, ``"trace"`` or an int.
        options: As for :func:`tangentlab.ntk`.

    Returns:
        One row per network, the best first: ``model``, ``error`` (the share of samples that are classified wrong by the
        fit to the others; NaN for targets), ``error_std`` (its standard error), ``squared_error`` and
        ``squared_error_std``, ``gcv``, ``ridge``, ``parameters``, ``seconds`` (what the prediction cost) and ``note``.
        Sorted by ``error``, for targets by ``squared_error``.

    Raises:
        TangentError: There is no network, or there are no targets.

    Examples:
        >>> import torch
        >>> from tangentlab import analysis
        >>> deep = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> models = {"linear": torch.nn.Linear(4, 2), "deep": deep}
        >>> x, y = torch.randn(20, 4), torch.arange(20) % 2
        >>> ranked = analysis.rank_models(models, x, y)
        >>> sorted(ranked["model"])
        ['deep', 'linear']

    See also:
        :func:`tangentlab.analysis.predicted_error`, :func:`tangentlab.forecast.leave_one_out`.
    """
    if isinstance(models, nn.Module):
        raise TangentError("One model was passed.", "Several are ranked.", "Pass a dict of networks by name.")
    if not isinstance(models, Iterable):
        raise TangentError(f"The models are a {type(models).__name__}.", "", "Pass a dict of networks by name.")
    named = dict(models) if isinstance(models, Mapping) else {str(i): model for i, model in enumerate(models)}
    if not named:
        raise TangentError("There are no models.", "", "Pass a dict of networks by name.")
    for name, model in named.items():
        if not isinstance(model, nn.Module):
            raise TangentError(f"The model {name!r} is a {type(model).__name__}.", "", "Pass torch.nn.Modules.")
    if readout not in ("pntk", "trace") and (isinstance(readout, bool) or not isinstance(readout, int)):
        raise TangentError(f"The readout is {readout!r}.", "One kernel serves all targets.", 'Use "pntk" or "trace".')
    rows = [{"model": name, **_predicted(model, x, y, readout, options)} for name, model in named.items()]
    table = pd.DataFrame(rows)
    order = "squared_error" if table["error"].isna().any() else "error"
    return table.sort_values([order, "squared_error"], ignore_index=True)


def _predicted(model: nn.Module, x: Any, y: Any, readout: str, options: dict[str, Any]) -> dict[str, Any]:
    begin = time.perf_counter()
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    samples = Samples(x, device=device, input=options.get("input"), model=model, name="x")
    given = samples.targets_or(y)
    if given is None:
        raise TangentError("There are no targets.", "The samples came without labels.", "Pass y.")
    targets, classes = _columns(given)
    if len(targets) != len(samples):
        raise TangentError(
            f"There are {len(samples):,} samples and {len(targets):,} targets.", "", "Pass as many targets as samples."
        )
    frozen, note = at_batch_statistics(model, samples)
    rest = {key: value for key, value in options.items() if key != "input"}
    kernel = ntk(frozen, samples.batch(slice(0, len(samples))).inputs, readout=readout, **rest)
    left = leave_one_out(linalg.eigh(kernel), targets.to(kernel.device))
    wrong = None
    if classes is not None:
        mean = nn.functional.one_hot(classes).double().mean(0).to(kernel.device)
        wrong = ((left.predictions + mean).argmax(1) != classes.to(kernel.device)).double()
    return {
        "error": float("nan") if wrong is None else float(wrong.mean()),
        "error_std": float("nan") if wrong is None else float(wrong.std() / len(wrong) ** 0.5),
        "squared_error": left.error,
        "squared_error_std": left.standard_error,
        "gcv": left.gcv,
        "ridge": left.ridge,
        "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "seconds": time.perf_counter() - begin,
        "note": note,
    }


def _columns(given: Any) -> tuple[Tensor, Tensor | None]:
    """Return targets (N, L) without their mean, and the classes if they are classes."""
    try:
        targets = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(f"The targets are a {type(given).__name__}.", "", "Give a tensor of numbers.") from error
    if targets.is_complex() or not targets.ndim:
        kind = "complex" if targets.is_complex() else "one number"
        raise TangentError(f"The targets are {kind}.", "", "Give classes (N,) or real numbers (N, L).")
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        raise TangentError("The targets hold NaN or infinite values.", "", "Clean the data.")
    if targets.is_floating_point() or targets.ndim > 1:
        values = targets.double().reshape(len(targets), -1)
        return values - values.mean(0), None
    if int(targets.min()) < 0 or len(targets.unique()) < 2:
        raise TangentError(
            "The labels have one class, or negative numbers.", "", "Give classes from 0 on, two or more."
        )
    classes = targets.unique(return_inverse=True)[1]  # numbers may have gaps
    hot = nn.functional.one_hot(classes).double()
    return hot - hot.mean(0), classes
