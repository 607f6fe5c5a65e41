"""``tangentlab posterior``: class probabilities and predictions with uncertainty."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, note, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from tangentlab._cli._learning_task import LearningTask
    from tangentlab.posterior import Calibration, Posterior

app = typer.Typer()


@command(app)
def posterior(
    *,
    network: options.NetworkOptions,
    samples: options.DataOptions = options.DIGITS,
    task: options.Task = "classes",
    method: Annotated[
        str, options.option(value="NAME", help="How to compute: auto, exact, lanczos, cg or sketch.")
    ] = "auto",
    mean: Annotated[
        str | None,
        options.option(
            value="NAME",
            help="Mean of the predictions: network, for trained weights (the default for classes), or posterior.",
        ),
    ] = None,
    subset: Annotated[
        int | None, options.option(value="N", min=1, help="Number of training samples to draw; by default all.")
    ] = None,
    features: Annotated[
        int | None,
        options.option("-k", value="K", min=1, help="Features of sketch (2048) or directions of lanczos (500)."),
    ] = None,
    prior_precision: Annotated[
        str | None,
        options.option(
            value="X",
            help="Prior precision of the weights: a number, or evidence to choose it by the marginal likelihood, the "
            "default with --mean posterior.",
        ),
    ] = None,
    noise: Annotated[
        float | None,
        options.option(value="X", help="Variance of real targets; by default chosen by the marginal likelihood."),
    ] = None,
    held_out: Annotated[
        int | None,
        options.option(
            value="N",
            min=1,
            help="Choose the prior precision by the last N training samples, which are left out; the network must not "
            "have been trained on them.",
        ),
    ] = None,
    parameters: Annotated[
        str | None, options.option(value="NAME", help="Name, prefix or pattern of the parameters that are uncertain.")
    ] = None,
    chosen: options.KernelOptions = options.FULL,
    output: options.FolderOptions,
) -> None:
    """Compute predictions with the uncertainty of a network's weights: linearized Laplace, a Gaussian process.

    The readouts full, pntk and per_class have a posterior. With class labels: accuracy, negative log-likelihood and
    calibration error of the network and of its posterior on the test samples. With --out: posterior.pt (what
    tangentlab.posterior.load reads), predictions.npz, reliability.png and reliability.csv; with real targets
    predictions.png instead of the last two.

    Example: tangentlab posterior --model lenet --checkpoint weights.pt --data mnist --subset 500 --held-out 5000
    """
    from tangentlab import posterior as package
    from tangentlab._cli._kernels import parse_dtype
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._recipe import make_recipe

    learning = load_task(make_recipe(network, samples), task, chosen.device, output)
    if network.checkpoint is None and mean != "posterior":
        note("Weights: initial, not trained. Pass --checkpoint, or --mean posterior.", output.quiet)
    train = learning.data.train
    begin = time.perf_counter()
    x, y = inputs_of(train), train.targets
    kept, left = _split(x, y, held_out, train)
    belief = package.fit(
        learning.model, *kept, mean=mean, prior_precision=_precision(prior_precision), noise=noise, validation=left,
        readout=chosen.readout, parameters=parameters, method=method, subset=subset, k=features,
        dtype=parse_dtype(chosen.dtype), device=chosen.device, memory_budget=chosen.memory, progress=output.progress,
    )  # fmt: skip
    folder = Folder(output.out)
    facts: dict[str, Any] = {
        "method": belief.about,
        "prior_precision": belief.prior_precision,
        **({"noise": belief.noise} if belief.likelihood == "regression" else {}),
        "log_marginal_likelihood": belief.log_marginal_likelihood,
    }
    if learning.has_test:
        facts |= _tested(learning, belief, folder)
    if output.out is not None:
        _save(belief, output, folder)
    facts["seconds"] = time.perf_counter() - begin
    folder.record(facts)
    say(facts, output.as_json)


def _precision(text: str | None) -> float | str | None:
    if text is None or text == "evidence":
        return text
    try:
        return float(text)
    except ValueError:
        raise TangentError(f"--prior-precision is {text!r}.", "", "Write a positive number, or evidence.") from None


def _split(x: Any, y: Any, held_out: int | None, train: Any) -> tuple[tuple[Any, Any], tuple[Any, Any] | None]:
    """Return the samples to fit, and those that are left out to choose hyperparameters by."""
    count = len(y)
    if held_out is None:
        return (x, y), None
    if held_out >= count:
        raise TangentError(f"--held-out is {held_out}.", f"There are {count} training samples.", "Leave some to fit.")
    first, last = range(count - held_out), range(count - held_out, count)
    return (train.batch(first)[0], y[: count - held_out]), (train.batch(last)[0], y[count - held_out :])


def _tested(learning: "LearningTask", belief: "Posterior", folder: Folder) -> dict[str, Any]:
    """Measure the test samples; write predictions, and the picture for classes."""
    import torch

    from tangentlab import plot
    from tangentlab import posterior as package
    from tangentlab._cli._learning_task import inputs_of

    test = learning.data.test
    found = belief.predict(inputs_of(test))
    targets = test.targets
    if belief.likelihood == "regression":
        y = targets.to(found.mean).reshape(found.mean.shape)
        variance = found.variance + belief.noise
        folder.arrays("predictions.npz", mean=found.mean.cpu().numpy(), std=variance.sqrt().cpu().numpy())
        if folder.path is not None:
            axes = plot.predictions(found.mean, variance.sqrt(), y, title=learning.data.name)
            folder.figure("predictions.png", axes)
        gap = (found.mean - y).square()
        return {
            "test_squared_error": float(gap.mean()),
            "network_test_squared_error": float((learning.outputs(test).to(y) - y).square().mean()),
            "test_nll": float((gap / variance + (2 * torch.pi * variance).log()).mean() / 2),
            "test_within_two_std": float((gap <= 4 * variance).double().mean()),
        }
    probabilities = found.probabilities()
    plain = package.Prediction(learning.outputs(test).double(), torch.zeros_like(found.covariance))
    both: dict[str, Calibration] = {
        "network": package.calibration(plain.probabilities("mean"), targets),
        "posterior": package.calibration(probabilities, targets),
    }
    folder.arrays(
        "predictions.npz", mean=found.mean.cpu().numpy(), std=found.std.cpu().numpy(),
        probabilities=probabilities.cpu().numpy(),
    )  # fmt: skip
    folder.table("reliability.csv", both["posterior"].bins)
    if folder.path is not None:
        folder.figure("reliability.png", plot.reliability(both, title=learning.data.name))
    rows = (("test_accuracy", "accuracy"), ("test_nll", "nll"), ("test_calibration_error", "ece"))
    return {
        prefix + name: getattr(one, key)
        for name, key in rows
        for prefix, one in (("", both["posterior"]), ("network_", both["network"]))
    }


def _save(belief: "Posterior", output: options.FolderOptions, folder: Folder) -> None:
    """Write the posterior, unless it is matrix-free."""
    if belief.method in ("cg", "lanczos"):
        note("A matrix-free posterior is not written.", output.quiet)
    elif folder.path is not None:
        belief.save(folder.path / "posterior.pt")
