"""The spec of an experiment: a frozen dataclass whose every field can be set from the command line."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from tangentlab._errors import TangentError
from tangentlab._suggestions import did_you_mean
from tangentlab.experiments._roles import FOUND, LABEL, ROWS, Purpose, role, used_as

PRESETS = ("tiny", "small", "paper")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The fields common to all specs; each family adds its own fields and declares their roles (``_roles``).

    Attributes:
        preset: The preset it started from.
        seed: The first seed.
        seeds: Number of seeds, starting at ``seed``. A seed is one replicate: it determines weights, minibatches, which
            images are drawn, shifts and random labels. It is the column ``seed`` of every table of replicates.
        device: Device of the networks, ``"cpu"`` or ``"cuda"``.
        substitute: Whether other data replaces the paper's.
    """

    preset: str = field(metadata=FOUND)
    seed: int = field(default=0, metadata=LABEL)
    seeds: int = field(default=1, metadata=ROWS)
    device: str = field(default="cpu", metadata=LABEL)
    substitute: bool = field(default=False, metadata=LABEL)

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds as a tuple."""
        return tuple(range(self.seed, self.seed + self.seeds))

    @property
    def trains(self) -> bool:
        """Whether anything is trained: not if initialization is the only checkpoint."""
        return max(used_as(self, Purpose.CHECKPOINTS, (1,))) > 0

    def fields(self) -> list[str]:
        """Return the names of the fields that can be set."""
        return [item.name for item in fields(self) if not role(type(self), item.name).found]

    def override(self, values: Mapping[str, Any]) -> Self:
        """Return the same spec with other values of some fields.

        Args:
            values: By field. Strings, as from the command line, are read as the field's type: ``"3"``, ``"0.1"``,
                ``"true"``, ``"none"``, and ``"1,2,5"`` for several.

        Raises:
            TangentError: For a name that is not a field (with the closest one), or a value that is not of its type.
        """
        hints = typing.get_type_hints(type(self))
        known = self.fields()
        changes = {}
        for name, value in values.items():
            if name not in known:
                raise TangentError(
                    f"There is no field {name!r} to set.",
                    remedy=f"{did_you_mean(name, known)}The fields are {', '.join(known)}.",
                )
            changes[name] = _read(name, value, hints[name])
        return dataclasses.replace(self, **changes)

    def describe(self) -> dict[str, Any]:
        """Return the fields as plain values, for the record."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for item in fields(self):
            _check(item.name, getattr(self, item.name), hints[item.name])
        if self.preset not in PRESETS:
            raise TangentError(f"There is no preset {self.preset!r}.", remedy=f"Choose one of {', '.join(PRESETS)}.")
        if self.seeds < 1:
            raise TangentError(f"seeds={self.seeds} leaves nothing to run.", remedy="Use 1 or more.")


def parse_assignments(assignments: list[str]) -> dict[str, str]:
    """Parse ``["seeds=3", "widths=1,2"]`` into a mapping.

    Raises:
        TangentError: For an entry without ``=``.
    """
    values = {}
    for entry in assignments:
        name, sign, value = entry.partition("=")
        if not sign or not name.strip():
            raise TangentError(f"{entry!r} sets nothing.", remedy="Write --set FIELD=VALUE, for example --set seeds=3.")
        values[name.strip()] = value.strip()
    return values


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _options(kind: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, or the type alone."""
    return typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)


def _read(name: str, value: Any, kind: Any) -> Any:
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    options = _options(kind)
    if type(None) in options and value.lower() in ("none", ""):
        return None
    for option in options:
        if option is not type(None):
            try:
                return _convert(value, option)
            except ValueError as error:
                raise TangentError(
                    f"{name}={value!r} is not {_name(option)}.", remedy=f"Write --set {name}={_example(option)}."
                ) from error
    raise TypeError(f"{name}: {kind}")


def _convert(text: str, kind: Any) -> Any:
    if typing.get_origin(kind) is tuple:
        (item, *_) = typing.get_args(kind)
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if not parts:
            raise ValueError(text)
        return tuple(_convert(part, item) for part in parts)
    if kind is bool:
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ValueError(text)
        return text.lower() in ("true", "yes", "1")
    if kind is int:
        return int(text.replace("_", ""))
    return kind(text)


def _check(name: str, value: Any, kind: Any) -> None:
    """Refuse a value that is not of the field's type, and numbers that no experiment can use."""
    options = _options(kind)
    if value is None and type(None) in options:
        return
    if not any(_fits(value, option) for option in options):
        raise TangentError(
            f"{name}={value!r} is not {_name(options[0])}.", remedy=f"Give, for example, {_example(options[0])}."
        )
    for item in value if isinstance(value, tuple) else (value,):
        if isinstance(item, int | float) and not isinstance(item, bool) and not 0 <= item < float("inf"):
            raise TangentError(f"{name}={item} is negative or not finite.", remedy="Give a number from 0.")


def _fits(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is tuple:
        (item, *_) = typing.get_args(kind)
        return isinstance(value, tuple) and len(value) > 0 and all(_fits(part, item) for part in value)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)


_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}
_EXAMPLES = {int: "3", float: "0.1", bool: "true", str: "lenet"}


def _name(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        plural = {int: "whole numbers", float: "numbers", str: "words", bool: "truth values"}
        return f"a list of {plural[typing.get_args(kind)[0]]}"
    return _NAMES.get(kind, str(kind))


def _example(kind: Any) -> str:
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        return {int: "1,2,5", float: "0.5,1,2", str: "mlp,lenet", bool: "true,false"}[item]
    return _EXAMPLES.get(kind, "...")
