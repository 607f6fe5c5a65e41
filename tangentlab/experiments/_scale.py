"""Where a run tests the paper's claims: as published, on the paper's data but reduced, or on other data.

Every setting is compared with the ``paper`` preset, whatever preset the run started from. What only chooses among the
paper's rows (models, widths, indices) or says how well they are known (seeds) may differ; a list of sizes counts as its
largest. What a field is, a setting, a choice of rows or a size, is declared on the field (``_roles``).
"""

from typing import TYPE_CHECKING, Any

from tangentlab.experiments._roles import Purpose, role, roles, used_as
from tangentlab.experiments._verdicts import Scope

if TYPE_CHECKING:
    from tangentlab.experiments._spec import Spec

# Images of the data sets' splits; None in a spec means all of them.
IMAGES = {Purpose.TRAIN: {"mnist": 60_000, "cifar10": 50_000}, Purpose.TEST: {"mnist": 10_000, "cifar10": 10_000}}
# What has no effect where nothing is trained.
_OF_TRAINING = (Purpose.EPOCHS, Purpose.BATCH, Purpose.CHECKPOINTS)


def images(spec: "Spec", split: Purpose = Purpose.TRAIN) -> int | None:
    """Return the number of images of a split; None if the spec says all and the number is not known."""
    value: int | None = used_as(spec, split)
    return IMAGES[split].get(used_as(spec, Purpose.DATA, "")) if value is None else value


def scope_of(spec: "Spec", paper: "Spec") -> tuple[Scope, str]:
    """Return where a run of this spec tests claims, and what differs from the paper's settings."""
    other = sorted(_data(spec) - _data(paper))
    if other or spec.substitute:
        names = ", ".join(other) or ", ".join(sorted(_data(spec)))
        return Scope.OTHER, f"{names} in place of {', '.join(sorted(_data(paper)))}"
    reduced = unlike_paper(spec, paper)
    return (Scope.REDUCED, reduced) if reduced else (Scope.PUBLISHED, "")


def unlike_paper(spec: "Spec", paper: "Spec") -> str:
    """Return the settings that differ from the paper's, in words; empty if there are none."""
    kept = {name: both for name, both in differences(spec, paper).items() if _is_setting(name, spec, paper)}
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


def _is_setting(name: str, spec: "Spec", paper: "Spec") -> bool:
    own = role(type(spec), name)
    if own.purpose in _OF_TRAINING and not spec.trains:
        return False
    if own.model:
        return own.model in used_as(spec, Purpose.MODELS, ())
    if own.purpose is Purpose.CHECKPOINTS:  # what is called "after training" is the last one
        return max(getattr(spec, name)) != used_as(spec, Purpose.EPOCHS)
    if own.sizes:
        return _largest(spec, name) < _largest(paper, name)
    return own.setting


def _data(spec: "Spec") -> set[str]:
    named = used_as(spec, Purpose.DATA, "")
    return {str(name) for name in (named if isinstance(named, tuple) else (named,))}


def _largest(spec: "Spec", name: str) -> float:
    """Return the largest of a list of sizes, in which 0 is all training images."""
    return max(item or images(spec) or float("inf") for item in getattr(spec, name))


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
