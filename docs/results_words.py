"""Sizes, times and numbers of results in words."""

import re
from datetime import datetime
from typing import Any

from docs.replicates import parts
from tangentlab.experiments import Result, Scope, get
from tangentlab.experiments._judge import spec_of_record
from tangentlab.experiments._scale import differences, in_words, number

_IMAGES = {"n_train": "training images", "n_test": "test images"}
_COUNTS = {"epochs": "epochs", "samples": "samples of the kernel", "baseline_epochs": "epochs on CIFAR2"}
_NAMES = {
    "mlp": "MLP",
    "lenet": "LeNet",
    "resnet18": "ResNet18",
    "fcn": "FCN",
    "convnet": "ConvNet",
    "wide_resnet16": "WideResNet-16",
    "mnist": "MNIST",
    "mnist:shifted": "shifted MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
}
_LABELS = {
    "models": "networks",
    "architectures": "architectures",
    "indices": "indices",
    "widths": "widths",
    "sizes": "training set sizes",
    "checkpoints": "checkpoints at epochs",
    "depths": "depths",
    "sets": "data sets",
    "data": "data set",
    "methods": "methods",
    "solver_sizes": "training points of the solver",
    "resnet_width": "width of ResNet18",
    "resnet_activation": "activation of ResNet18",
    "zero_init_residual": "last BatchNorm scales of ResNet18's blocks at zero",
    "batch_size": "minibatches of",
    "lr": "learning rate",
    "linear_lr": "learning rate of the linearization",
    "pad_to": "images padded to",
    "decay_every": "epochs between two reductions of the learning rate",
    "side": "side of the inputs in pixels",
    **{f"{name}_widths": f"widths of {_NAMES[name]}" for name in ("fcn", "convnet", "resnet18", "wide_resnet16")},
}
# What is published was made from these copies where the records say that the files are not the publisher's.
COPIES = {"cifar10": "JPEG copy"}
# What decides no number that is shown.
_UNSEEN = ("seeds", "watched", "watch_every", "eigenpairs", "repeats")


def scale(result: Result) -> str:
    """Describe how the run differs from the paper's, in one sentence."""
    spec: Any = spec_of_record(result.record)
    changes = differences(spec, get(result.id).presets["paper"])
    if "baseline_epochs" in changes:  # 0 means as many as on the eigenfunctions
        changes["baseline_epochs"] = (changes["baseline_epochs"][0] or spec.epochs, changes["baseline_epochs"][1])
    named = [_change(name, *both) for name, both in changes.items() if name not in _UNSEEN and _used(name, spec)]
    if not named:
        return "As published." if spec.preset != "tiny" else "The tiny preset."
    start = {"tiny": "The tiny preset: ", "small": "", "paper": ""}[spec.preset]
    words = "; ".join(named)
    return f"{start}{words if start else words[0].upper() + words[1:]}."


def tested(claim: dict[str, Any]) -> str:
    """Return where a claim was tested, in a word or two."""
    return {Scope.PUBLISHED: "as published", Scope.REDUCED: "reduced", Scope.OTHER: "other data"}[Scope(claim["scope"])]


def _used(name: str, spec: Any) -> bool:
    if name in ("resnet_width", "resnet_activation"):
        return "resnet18" in spec.models
    if name == "zero_init_residual":
        return "resnet18" in spec.architectures
    if name == "baseline_epochs":
        return bool(spec.baseline)
    if name.endswith("_widths"):
        return name.removesuffix("_widths") in spec.architectures
    return True


def _change(name: str, mine: Any, theirs: Any) -> str:
    ours, papers = _value(name, mine), _value(name, theirs)
    if name in _IMAGES:
        return f"{ours} of {papers} {_IMAGES[name]}"
    if name in _COUNTS:
        return f"{ours} {_COUNTS[name]} (paper: {papers})"
    return f"{_LABELS.get(name, name.replace('_', ' '))} {ours} (paper: {papers})"


def _value(name: str, value: Any) -> str:
    if isinstance(value, tuple):
        if name == "solver_sizes":
            return ", ".join(number(item) if item else "all" for item in value)
        factor = "x" if name.endswith("widths") and name != "fcn_widths" else ""
        return ", ".join(_NAMES.get(str(item), factor + number(item)) for item in value)
    return _NAMES.get(str(value), in_words(value) if name in _IMAGES else number(value))


def data(record: dict[str, Any]) -> str:
    """Return the data sets, and which are not from the publisher's files."""
    named = []
    for name, entry in record["data"].items():
        copy = "" if entry["original"] else f" ({COPIES.get(name, 'not the publisher’s files')})"
        named.append(_NAMES.get(name, name) + copy)
    return ", ".join(named)


def seeds(result: Result) -> str:
    """Return the number of seeds, next to the paper preset's, which is not always the paper's own."""
    own, papers = len(result.record["seeds"]), get(result.id).presets["paper"].seeds
    return str(own) if own == papers else f"{own} (paper preset: {papers})"


def wall_clock(record: dict[str, Any]) -> str:
    """Return the time that the result took: of all its units of work if the record has it, else of the last command."""
    if "work_seconds" in record:
        return duration(record["work_seconds"])
    before = "" if record["work"]["computed"] else " (all units of work were already finished)"
    return duration(record["seconds"]) + before


def duration(seconds: float) -> str:
    """Format a duration: ``"12 s"``, ``"3.4 min"``, ``"2.1 h"``."""
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def machine(record: dict[str, Any]) -> str:
    """Return processor, threads and memory of each machine that the result was computed on."""
    return "; ".join(dict.fromkeys(_machine(part["hardware"]) for part in parts(record)))


def _machine(hardware: dict[str, Any]) -> str:
    named = [hardware["processor"], f"{hardware['cores']} cores", f"{hardware['memory_gib']:g} GiB", *hardware["gpus"]]
    return ", ".join(named)


def when(record: dict[str, Any]) -> str:
    """Return which seeds were run on which day; empty if all were run at once."""
    days: dict[str, list[int]] = {}
    for part in parts(record):
        day = datetime.fromisoformat(part["finished"])
        days.setdefault(f"{day:%B} {day.day}, {day.year}", []).extend(part["seeds"])
    if len(days) < 2:
        return ""
    return "; ".join(f"{_seeds(sorted(numbers))} on {day}" for day, numbers in days.items())


def _seeds(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"seed {numbers[0]}"
    return f"seeds {numbers[0]} {'and' if len(numbers) == 2 else 'to'} {numbers[-1]}"


def value(claim: dict[str, Any]) -> str:
    """Format our value with the precision of the paper's."""
    if claim["value"] is None:
        return "–"
    if claim["reference"] is None:
        return _minus(f"{claim['value']:.4g}")
    return _minus(f"{claim['value']:.2f}") + unit(claim)


def interval(claim: dict[str, Any]) -> str:
    """Format the interval; empty if the spread is not known."""
    if claim["low"] is None:
        return ""
    form = "{:.4g}" if claim["reference"] is None else "{:.2f}"
    return _minus(f"{form.format(claim['low'])} to {form.format(claim['high'])}")


def paper(claim: dict[str, Any]) -> str:
    """Return the paper's number with its unit."""
    return f"{claim['reference']:g}{unit(claim)}"


def difference(claim: dict[str, Any]) -> str:
    """Format our value minus the paper's; empty if the paper has no number."""
    if claim["value"] is None or claim["reference"] is None:
        return ""
    return _minus(f"{claim['value'] - claim['reference']:+.2f}")


def unit(claim: dict[str, Any]) -> str:
    """Return the unit after the paper's number, with a non-breaking space."""
    found = re.match(r"-?[\d.,]+ (%|points)", claim["paper"])
    return f"\N{NO-BREAK SPACE}{found[1]}" if found else ""


def needed(claim: dict[str, Any]) -> str:
    """Return the threshold in mathematical signs, if there is one."""
    return "required: " + claim["threshold"].replace("<=", "≤").replace(">=", "≥").replace("+-", "±").replace(
        " -", " −"
    )


def _minus(number: str) -> str:
    return number.replace("-", "−")
