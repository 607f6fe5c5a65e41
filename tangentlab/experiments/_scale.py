"""How large a run is: against the ``small`` preset, which decides directions, and the ``paper`` preset, for numbers.

A spec can be larger than ``small`` in one field and smaller in another, so its preset's name does not say what it can
decide. What it is compared by:

- *Against small* (:func:`less_than_small`): the data are the paper's; there are at least as many different images to
  train on, to test on and in the kernels; and training sees at least as many images in all, n_train * epochs, in
  minibatches that are not larger. Fewer epochs are made up for by more images, since as many updates are made and the
  images are more varied. Fewer images are not made up for by more epochs.
- *Against the paper* (:func:`unlike_paper`): every setting is the paper's. What only chooses among the paper's rows
  (models, widths, indices), or how well they are known (seeds), may differ; a claim about a row that was not run finds
  no value.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tangentlab.experiments._spec import Spec

# Images of the data sets' splits; None in a spec stands for all of them.
IMAGES = {"n_train": {"mnist": 60_000, "cifar10": 50_000}, "n_test": {"mnist": 10_000, "cifar10": 10_000}}
# What a run is called and where; not what it does.
_BOOKKEEPING = ("preset", "seed", "device", "substitute", "less", "unlike")
# Lists choose rows, except these, of which the whole matters.
_SETTINGS = ("linear_lr", "linear_weight_decay")
# How many rows there are, or what no claim about a number reads.
_ROWS = (
    "seeds",
    "baseline",
    "baseline_epochs",
    "eigenpairs",
    "functions",
    "directions",
    "watched",
    "watch_every",
    "repeats",
    "batches",
)


def images(spec: "Spec", field: str = "n_train") -> int | None:
    """Images of a split; None where the spec says all and the number is not known."""
    value: int | None = getattr(spec, field, None)
    return IMAGES[field].get(getattr(spec, "data", "")) if value is None else value


def less_than_small(spec: "Spec", small: "Spec", paper: "Spec") -> str:
    """What keeps a spec from deciding claims about directions; empty if nothing does."""
    if _data(spec) - _data(paper):
        return f"{', '.join(sorted(_data(spec) - _data(paper)))} is not the paper's data."
    for field, what in (("n_train", "training images"), ("n_test", "test images")):
        if _fewer(images(spec, field), images(small, field)):
            return f"{number(images(spec, field))} {what} are fewer than the small preset's {_all(small, field)}."
    for field, what in (
        ("samples", "samples of the kernel"),
        ("sizes", "images of the largest training set"),
        ("solver_sizes", "training points of the solver"),
    ):
        mine, least = _largest(spec, field), _largest(small, field)
        if mine is not None and least is not None and mine < least:
            return f"{number(mine)} {what} are fewer than the small preset's {number(least)}."
    solved = set(getattr(spec, "methods", ())) == {"solver"}  # nothing is trained
    return "" if solved else _less_training(spec, small)


def _less_training(spec: "Spec", small: "Spec") -> str:
    epochs, least = getattr(spec, "epochs", None), getattr(small, "epochs", None)
    if epochs is None or least is None:
        return ""
    own, other = images(spec), images(small)
    # Where a number is not known, or images are drawn in sizes of their own, epochs are compared alone.
    seen, needed = (epochs, least) if own is None or other is None else (epochs * own, least * other)
    if seen < needed:
        said = f"{number(epochs)} epochs" + ("" if own is None else f" of {number(own)} images")
        return f"{said} are less training than the small preset's {number(least)} of {_all(small, 'n_train')}."
    if getattr(spec, "batch_size", 0) > getattr(small, "batch_size", 0):
        return "Minibatches are larger than the small preset's, so that there are fewer updates."
    return ""


def unlike_paper(spec: "Spec", paper: "Spec") -> str:
    """Settings that are not the paper's, in words; empty if there are none."""
    kept = {name: both for name, both in differences(spec, paper).items() if _is_setting(name, spec)}
    return ", ".join(
        f"{name} = {text(name, mine)} (paper: {text(name, theirs)})" for name, (mine, theirs) in kept.items()
    )


def differences(spec: "Spec", paper: "Spec") -> dict[str, tuple[Any, Any]]:
    """Every field that is other than in the paper preset, with both values; splits as numbers of images."""
    result = {}
    for name in vars(spec):
        if name in _BOOKKEEPING or not hasattr(paper, name):
            continue
        mine, theirs = getattr(spec, name), getattr(paper, name)
        if name in IMAGES:
            mine, theirs = images(spec, name), images(paper, name)
        if mine != theirs:
            result[name] = (mine, theirs)
    return result


def _is_setting(name: str, spec: "Spec") -> bool:
    value = getattr(spec, name)
    if name == "resnet_width":
        return "resnet18" in getattr(spec, "models", ())
    if name == "checkpoints":  # what is called "after training" is the last one
        return max(value) != getattr(spec, "epochs", None)
    return name not in _ROWS and (not isinstance(value, tuple) or name in _SETTINGS)


def _data(spec: "Spec") -> set[str]:
    named = getattr(spec, "sets", None) or (getattr(spec, "data", ""),)
    return {str(name) for name in named}


def _fewer(mine: int | None, least: int | None) -> bool:
    return mine is not None and (least is None or mine < least)


def _largest(spec: "Spec", field: str) -> int | None:
    """The largest number of a field; 0 in a list stands for all training images."""
    value = getattr(spec, field, None)
    if isinstance(value, tuple):
        counts: list[int | None] = [item or images(spec) for item in value]
        known = [count for count in counts if count is not None]
        return max(known) if len(known) == len(counts) else None
    return value


def _all(spec: "Spec", field: str) -> str:
    return text(field, images(spec, field))


def text(name: str, value: Any) -> str:
    """A field's value for people; None is "all" of a split."""
    return "all" if value is None and name in IMAGES else number(value)


def number(value: Any) -> str:
    """A value for people."""
    if isinstance(value, tuple | list):
        return ", ".join(map(number, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
