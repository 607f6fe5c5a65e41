"""``tangentlab posterior``: class probabilities and predictions with uncertainty."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, note, say
from tangentlab._errors import TangentError

if TYPE_CHECKING:
    from torch import Tensor

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
            help="Choose the prior precision by N test samples, drawn at random, and measure the others.",
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

    Example: tangentlab posterior --model lenet --checkpoint weights.pt --data mnist --subset 500 --held-out 1000
    """
    from tangentlab import posterior as package
    from tangentlab._cli._kernels import parse_dtype
    from tangentlab._cli._learning_task import inputs_of, load_task
    from tangentlab._cli._recipe import make_recipe

    learning = load_task(make_recipe(network, samples), task, chosen.device, output)
    if network.checkpoint is None and mean != "posterior":
        note("Weights: initial, not trained. Pass --checkpoint, or --mean posterior.", output.quiet)
    train, test = learning.data.train, learning.data.test
    begin = time.perf_counter()
    chosen_by, measured = _split(len(test), held_out)
    left = None if held_out is None else (test.batch(chosen_by)[0], test.targets[chosen_by])
    belief = package.fit(
        learning.model, inputs_of(train), train.targets, mean=mean, prior_precision=_precision(prior_precision),
        noise=noise, validation=left, readout=chosen.readout, parameters=parameters, method=method, subset=subset,
        k=features, dtype=parse_dtype(chosen.dtype), device=chosen.device, memory_budget=chosen.memory,
        progress=output.progress,
    )  # fmt: skip
    folder = Folder(output.out)
    facts: dict[str, Any] = {
        "method": belief.about,
        "prior_precision": belief.prior_precision,
        **({"noise": belief.noise} if belief.likelihood == "regression" else {}),
        "log_marginal_likelihood": belief.log_marginal_likelihood,
    }
    if learning.has_test:
        facts |= _tested(learning, belief, measured, folder)
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


def _split(tests: int, held_out: int | None) -> "tuple[Tensor, Tensor]":
    """Return the test samples to choose hyperparameters by, and those to measure."""
    import torch

    if held_out is not None and held_out >= tests:
        raise TangentError(
            f"--held-out is {held_out}.", f"There are {tests} test samples.", "Leave some to measure, or leave it out."
        )
    if held_out is None:
        return torch.arange(0), torch.arange(tests)
    order = torch.randperm(tests, generator=torch.Generator().manual_seed(0))
    return order[:held_out].sort().values, order[held_out:].sort().values


def _tested(learning: "LearningTask", belief: "Posterior", rows: "Tensor", folder: Folder) -> dict[str, Any]:
    """Measure the test samples; write predictions, and the picture for classes."""
    import torch

    from tangentlab import posterior as package
    from tangentlab._cli._learning_task import inputs_of

    test = learning.data.test
    found = belief.predict(inputs_of(test) if len(rows) == len(test) else test.batch(rows)[0])
    targets, plain_outputs = test.targets[rows], learning.outputs(test)[rows]
    if belief.likelihood == "regression":
        y = targets.to(found.mean).reshape(found.mean.shape)
        variance = found.variance + belief.noise
        folder.arrays("predictions.npz", mean=found.mean.cpu().numpy(), std=variance.sqrt().cpu().numpy())
        if folder.path is not None:
            std, name = variance.sqrt(), learning.data.name
            folder.figure("predictions.png", lambda plot: plot.predictions(found.mean, std, y, title=name))
        gap = (found.mean - y).square()
        return {
            "test_squared_error": float(gap.mean()),
            "network_test_squared_error": float((plain_outputs.to(y) - y).square().mean()),
            "test_nll": float((gap / variance + (2 * torch.pi * variance).log()).mean() / 2),
            "test_within_two_std": float((gap <= 4 * variance).double().mean()),
        }
    probabilities = found.probabilities()
    plain = package.Prediction(plain_outputs.double(), torch.zeros_like(found.covariance))
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
        folder.figure("reliability.png", lambda plot: plot.reliability(both, title=learning.data.name))
    names = (("test_accuracy", "accuracy"), ("test_nll", "nll"), ("test_calibration_error", "ece"))
    return {
        prefix + name: getattr(one, key)
        for name, key in names
        for prefix, one in (("", both["posterior"]), ("network_", both["network"]))
    }


def _save(belief: "Posterior", output: options.FolderOptions, folder: Folder) -> None:
    """Write the posterior, unless it is matrix-free."""
    if belief.method in ("cg", "lanczos"):
        note("A matrix-free posterior is not written.", output.quiet)
    elif folder.path is not None:
        belief.save(folder.path / "posterior.pt")
