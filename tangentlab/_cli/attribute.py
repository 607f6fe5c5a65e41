"""``tangentlab attribute``: which training samples made these predictions."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from tangentlab._cli import _options as options
from tangentlab._cli._command import command
from tangentlab._cli._output import Folder, note, say, say_table
from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean

app = typer.Typer()


@dataclass(frozen=True)
class CheckpointsOptions(options.NetworkOptions):
    """A network and the weights of one or several checkpoints."""

    checkpoint: Annotated[
        list[Path] | None,
        options.option(
            value="FILE",
            help="File with trained weights: a state dict (.pt), .safetensors, or a save_pretrained folder. Repeat the "
            "option for further checkpoints or seeds; their scores are averaged.",
        ),
    ] = None  # type: ignore[assignment]


@dataclass(frozen=True)
class TargetsOptions(options.DataOptions):
    """Samples with targets."""

    labels: Annotated[
        Path | None,
        options.option(
            "--targets", "--labels", value="FILE",
            help="Targets for a file of inputs: class indices (N,) or numbers (N, L).",
        ),
    ] = None  # fmt: skip
    test_labels: Annotated[
        Path | None,
        options.option("--test-targets", "--test-labels", value="FILE", help="Targets for the test inputs."),
    ] = None
    texts: Annotated[
        Path | None,
        options.option(
            value="FILE", help="Texts to show in place of inputs, one per line: the training samples, then the tests."
        ),
    ] = None


@dataclass(frozen=True)
class MethodOptions:
    """The method of attribution."""

    panel: ClassVar[str] = "Method"
    method: Annotated[
        str, options.option(value="NAME", help="Method of attribution: trak, exact, gradient or representer.")
    ] = "trak"
    k: Annotated[
        int | None,
        options.option("-k", value="K", min=1, help="Number of features per sample of trak; by default 2048."),
    ] = None
    ridge: Annotated[
        str | None,
        options.option(
            value="X",
            help="Ridge of exact and representer, a number or loo; of trak, in units of the mean eigenvalue.",
        ),
    ] = None
    readout: Annotated[
        str | None,
        options.option(
            value="READOUT",
            help="Readout to explain: margin, loss, label or next_token for trak and gradient; pntk or full for exact "
            "and representer.",
        ),
    ] = None
    cosine: Annotated[bool, options.option("--cosine", help="Divide the gradients of gradient by their norms.")] = False
    rate: Annotated[
        list[float] | None,
        options.option(value="X", help="Learning rate at a checkpoint, for gradient (TracIn); one per checkpoint."),
    ] = None
    features: Annotated[
        Path | None,
        options.option(value="FOLDER", help="Folder for the features of trak, which further test samples reuse."),
    ] = None

    def make(self) -> Any:
        """Return the method.

        Raises:
            TangentError: There is no such method, or it does not have an option that was given.
        """
        from tangentlab import attribution

        if self.method not in attribution.METHODS:
            names = ", ".join(attribution.METHODS)
            raise TangentError(
                f"There is no method {self.method!r} for --method.",
                "",
                f"{did_you_mean(self.method, attribution.METHODS)}Choose one of {names}.",
            )
        kind = attribution.METHODS[self.method]
        given = {
            "k": self.k,
            "ridge": None if self.ridge is None else _number(self.ridge),
            "readout": self.readout,
            "cosine": self.cosine or None,
            "rates": self.rate,
            "features": None if self.features is None else str(self.features),
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        known = kind.__dataclass_fields__
        for name in chosen:
            if name not in known:
                option = {"k": "-k", "rates": "--rate"}.get(name, f"--{name}")
                raise TangentError(
                    f"{option} was given with --method {self.method}.", "It would be ignored.", "Leave it out."
                )
        return kind(**chosen)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


@command(app, stopped="Rerun the command to resume.")
def attribute(
    *,
    network: CheckpointsOptions,
    samples: TargetsOptions = TargetsOptions(data="digits"),
    chosen: MethodOptions,
    dtype: Annotated[str | None, options.option(value="DTYPE", help="Precision: float32 or float64.")] = None,
    device: options.Device = None,
    memory: options.Memory = None,
    show: Annotated[
        str | None,
        options.option(
            value="LIST", help="Test samples on the page and in the table, such as 0,7,12; by default the first 10."
        ),
    ] = None,
    top: Annotated[int, options.option(value="N", min=1, help="Number of samples of each kind to show.")] = 8,
    output: options.FolderOptions,
) -> None:
    """Find the training samples that helped and harmed the predictions of a trained network most.

    A score is positive where a training sample helps. With --out: scores.npz, top.csv, and attribution.html with the
    samples themselves; rerun the command to resume.

    Example: tangentlab attribute --model mlp --checkpoint runs/mlp/weights.pt --data digits --n-test 50 --out runs/top
    """
    from tangentlab import attribution, report
    from tangentlab._cli._kernels import parse_device, parse_dtype

    method = chosen.make()
    problem = _load(network, samples, method, output)
    shown = _shown(show, problem.count)
    texts = _texts(samples.texts, problem)
    begin = time.perf_counter()
    result = attribution.attribute(
        problem.models,
        problem.train,
        problem.test,
        method,
        targets=problem.targets,
        test_targets=problem.test_targets,
        dtype=parse_dtype(dtype),
        device=parse_device(device),
        memory_budget=memory,
        out=output.out,
        progress=output.progress,
    )
    table = result.to_pandas(top)
    folder = Folder(output.out)
    folder.table("top.csv", table)
    facts: dict[str, Any] = {
        "method": method.name,
        "checkpoints": result.checkpoints,
        "training_samples": result.scores.shape[1],
        "test_samples": result.scores.shape[0],
        "seconds": time.perf_counter() - begin,
    }
    if output.out is not None:
        train, test = texts or (problem.train, problem.test)
        page = output.out / "attribution.html"
        report.attribution(result, train, test, page, tests=shown, k=top, names=problem.names)
        facts["page"] = str(page)
    few = table[table["test"].isin(shown)]
    if output.as_json:
        say({**facts, "top": few.to_dict("records")}, True)
    else:
        say(facts, False)
        say_table(few[few["rank"].isin((0, 1, 2, -1, -2, -3))])


@dataclass(frozen=True)
class _Problem:
    """Networks and samples; targets where they do not come with the samples."""

    models: list[Any]
    train: Any
    test: Any
    targets: Any
    test_targets: Any
    names: tuple[str, ...] | None
    samples: int
    count: int


def _load(network: CheckpointsOptions, samples: TargetsOptions, method: Any, output: options.OutputOptions) -> _Problem:
    from tangentlab._cli._kernels import load_network
    from tangentlab._cli._learning_task import inputs_of
    from tangentlab._cli._recipe import make_recipe
    from tangentlab._cli._samples import count

    recipe = make_recipe(replace(network, checkpoint=None), samples)
    files = network.checkpoint or []
    if not files and not recipe.from_factory:
        raise TangentError(
            "--checkpoint is missing.",
            "A network with random weights has learned from no sample.",
            "Train one with 'tangentlab train ... --out FOLDER' and pass --checkpoint FOLDER/weights.pt.",
        )
    unlabeled = recipe.from_file and samples.labels is None and getattr(method, "readout", None) == "next_token"
    if unlabeled:
        if samples.test_data is None:
            raise TangentError("--test-data is missing.", "There are no test samples.", "Pass --test-data FILE.")
        train, test = (replace(recipe, split=split).load_samples() for split in ("train", "test"))
        targets, names, sizes = (None, None), None, (count(train), count(test))
    else:
        data = recipe.load_labeled()
        sizes = len(data.train), len(data.test)
        train, test = inputs_of(data.train), inputs_of(data.test)
        targets = data.train.targets, data.test.targets
        names = tuple(data.classes) or None
    if sizes[1] == 0:
        raise TangentError(
            "There are no test samples.",
            "Every sample is for training.",
            "Pass --test-data FILE, or a smaller --n-train.",
        )
    if not recipe.from_factory:
        given = {"outputs": len(names or ())} if names else {}
        recipe = replace(recipe, model_options={**given, **recipe.model_options})
    recipes = [replace(recipe, checkpoint=str(file.absolute())) for file in files] or [recipe]
    models = [load_network(one, train, output) for one in recipes]
    if len(models) == 1:
        note("One checkpoint. Scores averaged over several seeds are more accurate.", output.quiet)
    return _Problem(models, train, test, *targets, names, *sizes)


def _shown(text: str | None, count: int) -> list[int]:
    """Return the test samples to show."""
    if text is None:
        return list(range(min(10, count)))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) < count for part in parts):
        raise TangentError(
            f"--show is {text!r}.", f"Test samples are numbered 0 to {count - 1}.", "Write 0,7,12, for example."
        )
    return [int(part) for part in parts]


def _texts(path: Path | None, problem: _Problem) -> tuple[list[str], list[str]] | None:
    """Return the texts of training and test samples."""
    if path is None:
        return None
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TangentError(
            f"{path} cannot be read: {error}.", "", "Pass a text file with one line per sample."
        ) from error
    if len(lines) != problem.samples + problem.count:
        raise TangentError(
            f"{path} holds {len(lines):,} lines, and there are {problem.samples:,} training and {problem.count:,} test "
            "samples.",
            "Each line is the text of one sample.",
            "Write one line per sample, the training samples first.",
        )
    return lines[: problem.samples], lines[problem.samples :]
