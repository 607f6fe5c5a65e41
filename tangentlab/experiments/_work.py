"""Units of work: long computations as plain picklable data whose hash names the result."""

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context

Outcome = TypeVar("Outcome", bound=Mapping[str, Any])
"""The result of a unit by name: a ``TypedDict``."""


@dataclass(frozen=True)
class UnitOfWork(ABC, Generic[Outcome]):
    """A computation that depends on its fields and on nothing else.

    A subclass is a frozen dataclass of plain values, other dataclasses and other units of work, which are then what it
    needs first. Its result is a dictionary of tensors, numbers, strings, and lists and dictionaries of them, so that it
    can be kept in the :class:`~tangentlab.experiments._cache.Cache`; the class names its keys and their types,
    ``UnitOfWork[Eigenvalue]`` with ``class Eigenvalue(TypedDict)``. Two experiments that need the same unit share it.

    Attributes:
        version: Version of the computation; a new one invalidates old results.
        stored_as: The name of the class in keys, where it is another than its own: a class that is renamed keeps its
            results. Any dataclass that is part of a unit can have it. It is not inherited.
        shown_as: What progress bars show, a format string of the fields; the name of the class if it is empty.
    """

    version: ClassVar[int] = 1
    stored_as: ClassVar[str] = ""
    shown_as: ClassVar[str] = ""

    @abstractmethod
    def compute(self, context: "Context") -> Outcome:
        """Compute the result. The results of other units come from the context."""

    @property
    def title(self) -> str:
        """The text of progress bars: :attr:`shown_as` with the values of the fields."""
        return self.shown_as.format_map(vars(self)) or type(self).__name__

    @property
    def key(self) -> str:
        """The name of the result: a hash of :func:`describe`."""
        text = json.dumps(describe(self), sort_keys=True)
        return f"{_stored_name(self).lower()}-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def _stored_name(value: Any) -> str:
    return vars(type(value)).get("stored_as") or type(value).__name__


def describe(value: Any) -> Any:
    """Return plain values that distinguish two units: class, version and all fields, recursively."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {
            field.metadata.get("stored_as", field.name): describe(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
        if isinstance(value, UnitOfWork):
            entries["version"] = value.version
        return {"kind": _stored_name(value), **entries}
    if isinstance(value, tuple | list):
        return [describe(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} cannot be part of a unit of work")


def needs(value: Any) -> Iterator[UnitOfWork[Any]]:
    """Yield the units of work directly inside a value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if isinstance(inner, UnitOfWork):
                yield inner
            else:
                yield from needs(inner)
    elif isinstance(value, tuple | list):
        for item in value:
            if isinstance(item, UnitOfWork):
                yield item
            else:
                yield from needs(item)


def inside(value: Any) -> Iterator[Any]:
    """Yield every dataclass within a value, recursively."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from inside(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from inside(getattr(value, field.name))


def stages(wanted: Sequence[UnitOfWork[Any]]) -> list[list[UnitOfWork[Any]]]:
    """Return all units that are needed, each once, in stages. A stage needs only the stages before it."""
    depths: dict[str, tuple[int, UnitOfWork[Any]]] = {}

    def visit(work: UnitOfWork[Any]) -> int:
        key = work.key
        if key not in depths:
            depths[key] = (1 + max((visit(inner) for inner in needs(work)), default=-1), work)
        return depths[key][0]

    for work in wanted:
        visit(work)
    deepest = max((depth for depth, _ in depths.values()), default=-1)
    result: list[list[UnitOfWork[Any]]] = [[] for _ in range(deepest + 1)]
    for depth, work in depths.values():
        result[depth].append(work)
    return result
