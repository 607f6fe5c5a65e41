"""Fitting a posterior: one call from a network and its training samples."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tangentlab._errors import TangentError
from tangentlab._memory import show_bytes
from tangentlab._seeds import check_seed
from tangentlab.kernels.internal import ParametersLike, Samples
from tangentlab.posterior._dense import Dense
from tangentlab.posterior._evidence import Hyperparameters, Model
from tangentlab.posterior._features import Features
from tangentlab.posterior._form import Form
from tangentlab.posterior._independent import Independent
from tangentlab.posterior._likelihood import Gaussian, make_likelihood
from tangentlab.posterior._links import Prediction
from tangentlab.posterior._matrix_free import MatrixFree
from tangentlab.posterior._posterior import Posterior
from tangentlab.posterior._tangent import Tangent

METHODS = ("auto", "exact", "cg", "lanczos", "sketch")
_ROWS = 12_000
"""With "auto", rows of a kernel that are still decomposed."""
_FEATURES, _RANK = 2048, 500


def fit(
    model: nn.Module,
    x: Any,
    y: Any = None,
    *,
    likelihood: str | None = None,
    mean: str | None = None,
    prior_precision: float | str | None = None,
    noise: float | None = None,
    validation: Any = None,
    readout: str = "full",
    parameters: ParametersLike = None,
    method: str = "auto",
    subset: int | Sequence[int] | Tensor | None = None,
    weight: float | None = None,
    k: int | None = None,
    unseen: str = "refuse",
    output: Callable[[Any], Tensor] | None = None,
    input: Callable[[Any], Any] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    batch_size: int | None = None,
    memory_budget: int | float | str | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> Posterior:
    """Fit the posterior of a network's linearization: a Gaussian process whose kernel is the NTK.

    Cost and accuracy depend on the method; :attr:`Posterior.method` says which one was used:

    - ``"exact"``: the kernel in memory, float64, decomposed; (N O)^3 / 3 operations and 32 (N O)^2 bytes for the full
      kernel, (O + 1/3) N^3 and 16 (O + 2) N^2 for ``"pntk"`` and ``"per_class"``.
    - ``"lanczos"``: matrix-free, the k leading directions of the full kernel, 8 N O k bytes; variances are never too
      small.
    - ``"cg"``: matrix-free, every variance by conjugate gradients; for few new samples.
    - ``"sketch"``: k features per output from random projections, 2 N O k^2 operations and 4 N O k bytes; any number of
      training samples.
    - ``"auto"``: exact where it fits, otherwise sketch.

    Choosing ``prior_precision`` or ``noise`` takes one eigendecomposition, 10 (N O)^3 operations, where that serves all
    values (a regression, or a trained network with the full kernel), and otherwise new factors for each value tried.

    Args:
        model: The network at the weights to linearize at, usually trained. It is copied, in evaluation mode.
        x: N training samples, in any form that :func:`tangentlab.ntk` takes.
        y: Targets: (N,) integers for classification, (N,) or (N, O) floating-point numbers for regression; None for
            the targets that come with the samples (a Dataset of pairs, a loader, ``labels`` in a dict).
        likelihood: ``"classification"`` (softmax, or sigmoid of one output) or ``"regression"``; None to go by the
            type of the targets.
        mean: ``"network"``: the network is trained, and its outputs are the mean (linearized Laplace); the default for
            classification. ``"posterior"``: f0 + J u at the mode, with the network's outputs f0 as prior mean, as for
            an untrained network; the default for regression.
        prior_precision: delta, the prior precision of the weights; None to choose it by ``validation``;
            ``"evidence"`` for the log marginal likelihood, the default with ``mean="posterior"``. A network that was
            trained on the mean loss of N samples with weight decay w has been trained with N w.
        noise: sigma^2, the variance of the targets of a regression; None to choose it.
        validation: Held-out samples (x, y): what is not given is chosen by their likelihood. A trained classifier needs
            them, or a number: its own training samples say little about how far it can be trusted, and the marginal
            likelihood, which takes all of |theta|^2 as a displacement from zero, makes its prior far too wide where
            there are fewer samples than parameters.
        readout: ``"full"``: covariances of all outputs. ``"pntk"``: the pseudo-NTK for every output. ``"per_class"``:
            each output's own kernel, without covariances.
        parameters: Which parameters are uncertain; None for all that require gradients, ``"readout"`` for a last layer
            of that name.
        method: See above.
        subset: A number of training samples to draw (every class in proportion), or their indices; None for all.
        weight: The number of samples that each sample counts as; None for N / subset at a trained network, which was
            trained on all N, and 1 otherwise.
        k: Features of ``"sketch"`` (2,048) or directions of ``"lanczos"`` (500).
        unseen: ``"allow"`` accepts classes of the network without a training sample.
        output: Takes the tensor of outputs from what the model returns; ``.logits`` is found.
        input: Takes the model's input from an item of a Dataset or a batch of a DataLoader.
        dtype: Precision of the network and its kernel; None for the model's. Solvers are in float64.
        device: Where to compute; None for the model's device.
        batch_size: Samples per forward pass; None for automatic.
        memory_budget: Bytes ("4GiB") for kernels; None for 60 % of what is free.
        seed: Seed of the subset, of sketches and of Lanczos.
        progress: Progress bars; None for "on a terminal".

    Raises:
        TangentError: No targets, targets that do not fit, a singular kernel, a precision or noise that is not positive,
            or a method that does not fit into memory.

    Examples:
        >>> import torch
        >>> from tangentlab import posterior
        >>> network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        >>> x, y = torch.randn(30, 4), torch.arange(30) % 2
        >>> belief = posterior.fit(network, x[:20], y[:20], validation=(x[20:], y[20:]), progress=False)
        >>> belief.predict_proba(x[20:]).shape
        torch.Size([10, 2])

    See also:
        :func:`tangentlab.posterior.calibration`, :func:`tangentlab.posterior.load`,
        :class:`tangentlab.estimators.PosteriorClassifier`.
    """
    by_evidence = prior_precision == "evidence"
    given = (
        _positive("prior_precision", None if by_evidence else prior_precision),
        _positive("noise", noise),
        _positive("weight", weight),
    )
    _one_of("method", method, METHODS)
    _one_of("unseen", unseen, ("refuse", "allow"))
    check_seed(seed)
    tangent = Tangent(
        model, readout, parameters=parameters, output=output, input=input, dtype=dtype, device=device,
        batch_size=batch_size, memory_budget=memory_budget, progress=progress,
    )  # fmt: skip
    samples = tangent.read(x)
    targets = _targets(samples, y)
    kind = likelihood or ("regression" if targets.is_floating_point() else "classification")
    _one_of("likelihood", kind, ("classification", "regression"))
    if kind == "classification" and given[1] is not None:
        raise TangentError("noise= was given for a classification.", "Its likelihood has none.", "Leave it out.")
    chosen_mean = mean or ("network" if kind == "classification" else "posterior")
    _one_of("mean", chosen_mean, ("network", "posterior"))
    if chosen_mean == "network" and given[0] is None and validation is None and not by_evidence:
        raise TangentError(
            "There is nothing to choose the prior precision by.",
            "The samples that a network was trained on do not show how far it can be trusted on others.",
            'Pass validation=(x, y) with held-out samples, prior_precision= with a number, or "evidence".',
        )
    rows = _choose(subset, targets if kind == "classification" else None, len(samples), seed)
    total = len(samples)
    batch = samples.batch(slice(0, total) if rows is None else rows).inputs
    targets = targets if rows is None else targets[rows]
    start = tangent.outputs(Samples(batch, device=tangent.device))
    default = total / len(targets) if chosen_mean == "network" else 1.0
    target = make_likelihood(kind, targets.to(start.device), start.shape[1], given[2] or default, unseen)
    form = _form(tangent, batch, start.shape, method, k, seed)
    norm = sum(float(p.detach().double().square().sum()) for p in tangent.parameters.values())
    problem = Model(form, target, start, chosen_mean == "network", norm)
    about = form.describe() + ("" if rows is None else f", a subset of {total:,}")
    objective = None if validation is None else _held_out(problem, tangent, validation, kind)
    if given[0] is None or (kind == "regression" and given[1] is None):
        with tangent.remembering():
            chosen = problem.choose(given[0], given[1], objective)
    else:
        chosen = Hyperparameters(given[0], given[1] or 1.0)
    mode = problem.mode(chosen)
    evidence = problem.evidence(chosen, mode) if method != "cg" else math.nan
    coefficients = None if mode.displacement is None else mode.displacement.coefficients
    form.forget()
    return Posterior(form, kind, chosen, coefficients, evidence, about)


def _form(tangent: Tangent, x: Any, shape: torch.Size, method: str, k: int | None, seed: int) -> Form:
    """Make the form of the kernel that a method means."""
    samples, outputs = shape
    full = tangent.readout == "full" or outputs == 1
    need = 32 * (samples * outputs) ** 2 if full else 16 * (outputs + 2) * samples**2
    room = tangent.room
    small = need <= room and (samples * outputs if full else samples) <= _ROWS
    if method == "auto":
        method = "exact" if small or not full else "sketch"
    if method == "exact":
        if need > room:
            raise TangentError(
                f"The exact posterior of {samples:,} samples x {outputs} outputs takes {show_bytes(need)}; "
                f"{show_bytes(room)} are allowed.",
                "Its matrices are in float64, in memory.",
                'Use subset=, readout="pntk", or method="sketch".',
            )
        return Dense(tangent, x, outputs) if full else Independent(tangent, x, outputs)
    if not full:
        raise TangentError(
            f"The method {method!r} was asked for with the readout {tangent.readout!r}.",
            "Sketches and matrix-free methods are of the full kernel, which they never form.",
            'Use readout="full", or subset= with the exact method.',
        )
    count = sum(p.numel() for p in tangent.parameters.values())
    if method == "sketch":
        return Features(tangent, x, outputs, _whole("k", k, min(_FEATURES, count)), seed)
    return MatrixFree(tangent, x, outputs, method, _whole("k", k, min(_RANK, samples * outputs)), seed)


def _held_out(model: Model, tangent: Tangent, validation: Any, kind: str) -> Callable[[Hyperparameters], float]:
    """Return the mean log-likelihood of held-out targets as a function of the hyperparameters."""
    pair = validation if isinstance(validation, tuple) and len(validation) == 2 else (validation, None)
    samples = tangent.read(pair[0])
    targets = _targets(samples, pair[1])
    test = make_likelihood(kind, targets.to(tangent.device), model.form.outputs, 1.0, unseen="allow").targets
    belief = Posterior(model.form, kind, Hyperparameters(1.0, 1.0), None, math.nan, "")
    batches = belief._batches(samples)

    def score(chosen: Hyperparameters) -> float:
        mode = model.mode(chosen, many=True)
        coefficients = None if mode.displacement is None else mode.displacement.coefficients
        now = Posterior(model.form, kind, chosen, coefficients, math.nan, "")
        parts = [now._at(batch, "blocks") for batch in batches]
        found = Prediction(*(torch.cat([part[i] for part in parts]) for i in (0, 1)))
        if isinstance(model.likelihood, Gaussian):
            variance = found.variance + chosen.noise
            return -float(((test - found.mean).square() / variance + variance.log()).mean()) / 2
        return float(found.probabilities().gather(1, test[:, None]).log().mean())

    return score


def _targets(samples: Samples, y: Any) -> Tensor:
    found = samples.targets_or(y)
    if found is None:
        raise TangentError(
            "There are no targets.",
            "There is no y, and the samples came without labels.",
            "Pass y, a Dataset of (input, target) pairs, or labels in a dict.",
        )
    try:
        targets = torch.as_tensor(found).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TangentError(
            f"The targets are a {type(found).__name__}.", "", "Give a tensor or an array of numbers."
        ) from error
    count = len(targets) if targets.ndim else 1
    if not targets.ndim or count != len(samples):
        raise TangentError(
            f"There are {len(samples):,} samples and {count:,} targets.",
            "Each sample has one target.",
            "Pass as many targets as samples.",
        )
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        raise TangentError("The targets hold NaN or infinite values.", "", "Clean the data.")
    return targets


def _choose(subset: Any, labels: Tensor | None, total: int, seed: int) -> list[int] | None:
    """Return the indices of a subset, every class in proportion; None for all samples."""
    if subset is None:
        return None
    if isinstance(subset, int) and not isinstance(subset, bool):
        if not 1 <= subset <= total:
            raise TangentError(f"subset={subset} of {total:,} samples.", "", f"Give a number from 1 to {total:,}.")
        order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
        if labels is not None and labels.ndim == 1:
            # The i-th sample of a class of n comes at (i + 1/2) / n, so that a prefix has every class in proportion.
            shuffled = labels[order].cpu()
            place = torch.empty(total, dtype=torch.float64)
            for label in shuffled.unique():
                inside = (shuffled == label).nonzero()[:, 0]
                place[inside] = (torch.arange(len(inside), dtype=torch.float64) + 0.5) / len(inside)
            order = order[place.argsort(stable=True)]
        return sorted(order[:subset].tolist())
    try:
        rows = torch.as_tensor(subset)
    except (TypeError, ValueError, RuntimeError):
        rows = torch.empty(0)
    if rows.ndim != 1 or rows.is_floating_point() or rows.dtype == torch.bool or not len(rows):
        raise TangentError("The subset is neither a number nor indices.", "", "Give for example 1000, or [0, 5, 7].")
    if int(rows.min()) < 0 or int(rows.max()) >= total or len(rows.unique()) != len(rows):
        raise TangentError("The subset has indices twice, or out of range.", "", f"Give indices below {total:,}, once.")
    return [int(row) for row in rows]


def _positive(name: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError, RuntimeError):
        number = math.nan
    if not (number > 0 and math.isfinite(number)):
        raise TangentError(f"{name}={value!r} is not a positive number.", "", "Give a positive number, or None.")
    return number


def _whole(name: str, value: Any, default: int) -> int:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TangentError(f"{name}={value!r} is not a positive whole number.", "", f"Use {default}, or None.")
    return value


def _one_of(name: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise TangentError(f"{name}={value!r} is not known.", "", f"Use one of {', '.join(map(repr, allowed))}.")
