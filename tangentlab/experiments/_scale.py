"""The scale of a run: against the ``small`` preset for directions, and against the ``paper`` preset for numbers.

A spec can be larger than ``small`` in one field and smaller in another, so its preset's name does not say what it can
decide. What it is compared by:

- *Against small* (:func:`less_than_small`): the data are the paper's; there are at least as many different images to
  train on, to test on and in the kernels; and training sees at least as many images in all, n_train * epochs, in
  minibatches that are not larger. Fewer epochs are made up for by more images, since as many updates are made and the
  images are more varied. Fewer images are not made up for by more epochs.
- *Against the paper* (:func:`unlike_paper`): every setting is the paper's. What only chooses among the paper's rows
  (models, widths, indices), or how well they are known (seeds), may differ; a claim about a row that was not run finds
  no value.

What a field is, a setting, a choice of rows or a size, is declared on the field (``_roles``).
"""

from typing import TYPE_CHECKING, Any

from tangentlab.experiments._roles import Purpose, role, roles, used_as

if TYPE_CHECKING:
    from tangentlab.experiments._spec import Spec

# Images of the data sets' splits; None in a spec means all of them.
IMAGES = {Purpose.TRAIN: {"mnist": 60_000, "cifar10": 50_000}, Purpose.TEST: {"mnist": 10_000, "cifar10": 10_000}}


def images(spec: "Spec", split: Purpose = Purpose.TRAIN) -> int | None:
    """Return the number of images of a split; None if the spec says all and the number is not known."""
    value: int | None = used_as(spec, split)
    return IMAGES[split].get(used_as(spec, Purpose.DATA, "")) if value is None else value


def less_than_small(spec: "Spec", small: "Spec", paper: "Spec") -> str:
    """Return why a spec cannot decide claims about directions; empty if it can."""
    if _data(spec) - _data(paper):
        return f"{', '.join(sorted(_data(spec) - _data(paper)))} is not the paper's data."
    for name, own in roles(spec).items():
        if own.counts:
            mine, least = _count(spec, name), _count(small, name)
            if mine is not None and (least is None or mine < least):
                return f"{number(mine)} {own.counts} are fewer than the small preset's {in_words(least)}."
    return _less_training(spec, small) if spec.trains else ""


def _less_training(spec: "Spec", small: "Spec") -> str:
    epochs, least = used_as(spec, Purpose.EPOCHS), used_as(small, Purpose.EPOCHS)
    if epochs is None or least is None:
        return ""
    own, other = images(spec), images(small)
    # Where a number is not known, or images are drawn in sizes of their own, epochs are compared alone.
    seen, needed = (epochs, least) if own is None or other is None else (epochs * own, least * other)
    if seen < needed:
        said = f"{number(epochs)} epochs" + ("" if own is None else f" of {number(own)} images")
        return f"{said} are less training than the small preset's {number(least)} of {in_words(other)}."
    if used_as(spec, Purpose.BATCH, 0) > used_as(small, Purpose.BATCH, 0):
        return "Minibatches are larger than the small preset's, so that there are fewer updates."
    return ""


def unlike_paper(spec: "Spec", paper: "Spec") -> str:
    """Return the settings that differ from the paper's, in words; empty if there are none."""
    kept = {name: both for name, both in differences(spec, paper).items() if _is_setting(name, spec)}
    words = {name: in_words if role(type(spec), name).purpose in IMAGES else number for name in kept}
    return ", ".join(
        f"{name} = {words[name](mine)} (paper: {words[name](theirs)})" for name, (mine, theirs) in kept.items()
    )


def differences(spec: "Spec", paper: "Spec") -> dict[str, tuple[Any, Any]]:
    """Return every field that differs from the paper preset, with both values; splits as numbers of images."""
    result = {}
    for name, own in roles(spec).items():
        if own.label or not hasattr(paper, name):
            continue
        mine, theirs = getattr(spec, name), getattr(paper, name)
        if own.purpose in IMAGES:
            mine, theirs = images(spec, own.purpose), images(paper, own.purpose)
        if mine != theirs:
            result[name] = (mine, theirs)
    return result


def _is_setting(name: str, spec: "Spec") -> bool:
    own = role(type(spec), name)
    if own.model:
        return own.model in used_as(spec, Purpose.MODELS, ())
    if own.purpose is Purpose.CHECKPOINTS:  # what is called "after training" is the last one
        return max(getattr(spec, name)) != used_as(spec, Purpose.EPOCHS)
    return own.setting


def _data(spec: "Spec") -> set[str]:
    named = used_as(spec, Purpose.DATA, "")
    return {str(name) for name in (named if isinstance(named, tuple) else (named,))}


def _count(spec: "Spec", name: str) -> int | None:
    """Return a size as a number, the largest of a list; None if it is all of a split and that number is not known."""
    purpose = role(type(spec), name).purpose
    if purpose in IMAGES:
        return images(spec, purpose)
    value: int | tuple[int, ...] = getattr(spec, name)
    if isinstance(value, int):
        return value
    counts = [item or images(spec) for item in value]
    known = [count for count in counts if count is not None]
    return max(known) if len(known) == len(counts) else None


def in_words(count: int | None) -> str:
    """Format a number of images; None is "all" of a split."""
    return "all" if count is None else number(count)


def number(value: Any) -> str:
    """Format a value for display."""
    if isinstance(value, tuple | list):
        return ", ".join(map(number, value))
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
