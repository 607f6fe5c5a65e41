"""The role of a field of a spec, declared on the field itself as the metadata of a dataclass field.

    >>> @dataclass(frozen=True, kw_only=True)
    ... class WidthSpec(Spec):
    ...     data: str = field(metadata=DATA)
    ...     widths: tuple[float, ...] = field(metadata=ROWS)
    ...     n_train: int | None = field(default=None, metadata=TRAIN_IMAGES)
    ...     lr: float = 0.1

A field without a declaration is a setting, the cautious choice: a run with another value does not decide claims
about the paper's numbers. A subclass that gives a field another default keeps its role. ``_scale`` reads the roles.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Purpose(StrEnum):
    """The purpose of a field in the comparison of two runs."""

    DATA = "data"
    TRAIN = "training images"
    TEST = "test images"
    EPOCHS = "epochs"
    BATCH = "minibatch"
    CHECKPOINTS = "checkpoints"
    MODELS = "models"


@dataclass(frozen=True)
class Role:
    """The role of a field.

    Attributes:
        setting: Whether a claim about a number asks for the paper's value. False for what chooses among the paper's
            rows, says how well they are known, or is read by no such claim.
        label: Whether it says which run this is and where, not what it does; labels are never compared.
        found: Whether it follows from how the spec was put together, so that it cannot be set.
        sizes: Whether it is a list of sizes with one row each, which is a setting where its largest is less than the
            paper's; 0 in it is all training images.
        purpose: What the comparison needs it for, if anything in particular.
        model: The only model that it is a setting of; empty for all.
    """

    setting: bool = True
    label: bool = False
    found: bool = False
    sizes: bool = False
    purpose: Purpose | None = None
    model: str = ""


Declaration = Mapping[str, Role]
_KEY = "role"
_SETTING = Role()

LABEL: Declaration = {_KEY: Role(setting=False, label=True)}
FOUND: Declaration = {_KEY: Role(setting=False, label=True, found=True)}
ROWS: Declaration = {_KEY: Role(setting=False)}
MODELS: Declaration = {_KEY: Role(setting=False, purpose=Purpose.MODELS)}
DATA: Declaration = {_KEY: Role(purpose=Purpose.DATA)}
DATA_ROWS: Declaration = {_KEY: Role(setting=False, purpose=Purpose.DATA)}
TRAIN_IMAGES: Declaration = {_KEY: Role(purpose=Purpose.TRAIN)}
TEST_IMAGES: Declaration = {_KEY: Role(purpose=Purpose.TEST)}
EPOCHS: Declaration = {_KEY: Role(purpose=Purpose.EPOCHS)}
BATCH_SIZE: Declaration = {_KEY: Role(purpose=Purpose.BATCH)}
SIZES: Declaration = {_KEY: Role(setting=False, sizes=True)}
CHECKPOINTS: Declaration = {_KEY: Role(setting=False, purpose=Purpose.CHECKPOINTS)}


def only_with(model: str) -> Declaration:
    """Declare a setting of one model, which has no effect if that model is not run."""
    return {_KEY: Role(model=model)}


def role(kind: type[Any], name: str) -> Role:
    """Return the role of a field of a spec's class, as declared by the nearest class."""
    for owner in kind.__mro__:
        field = vars(owner).get("__dataclass_fields__", {}).get(name)
        if field is not None and _KEY in field.metadata:
            found: Role = field.metadata[_KEY]
            return found
    return _SETTING


def roles(spec: Any) -> dict[str, Role]:
    """Return the role of every field of a spec, by name and in order."""
    return {name: role(type(spec), name) for name in type(spec).__dataclass_fields__}


def used_as(spec: Any, purpose: Purpose, default: Any = None) -> Any:
    """Return the value of the field with this purpose, or the default if a spec has none."""
    for name, own in roles(spec).items():
        if own.purpose is purpose:
            return getattr(spec, name)
    return default
