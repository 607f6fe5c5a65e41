"""Units of work: what takes long, as plain picklable data whose hash names its result."""

import dataclasses
import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from tangentlab.experiments._context import Context


@dataclass(frozen=True)
class Work(ABC):
    """A computation that depends on its fields and on nothing else.

    A subclass is a frozen dataclass of plain values, other dataclasses and other units of work, which are then what it
    needs first. Its result is a dictionary of tensors, numbers, strings, and lists and dictionaries of them, so that it
    can be kept in the :class:`~tangentlab.experiments._cache.Cache`. Two experiments that need the same unit share it.

    Attributes:
        version: Of the computation; a new one makes old results unknown.
    """

    version: ClassVar[int] = 1

    @abstractmethod
    def compute(self, context: "Context") -> dict[str, Any]:
        """The result. What other units give is asked of the context."""

    @property
    def title(self) -> str:
        """For progress bars."""
        return type(self).__name__

    @property
    def key(self) -> str:
        """The name of the result: a hash of :func:`describe`."""
        text = json.dumps(describe(self), sort_keys=True)
        return f"{type(self).__name__.lower()}-{hashlib.blake2b(text.encode(), digest_size=12).hexdigest()}"


def describe(value: Any) -> Any:
    """Plain values that tell two units apart: class, version and fields, to the last one."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        entries = {field.name: describe(getattr(value, field.name)) for field in dataclasses.fields(value)}
        if isinstance(value, Work):
            entries["version"] = value.version
        return {"kind": type(value).__name__, **entries}
    if isinstance(value, tuple | list):
        return [describe(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{value!r} cannot be part of a unit of work")


def needs(value: Any) -> Iterator[Work]:
    """The units of work directly inside a value."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = getattr(value, field.name)
            if isinstance(inner, Work):
                yield inner
            else:
                yield from needs(inner)
    elif isinstance(value, tuple | list):
        for item in value:
            if isinstance(item, Work):
                yield item
            else:
                yield from needs(item)


def inside(value: Any) -> Iterator[Any]:
    """Every dataclass within a value, to the last one."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from inside(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from inside(getattr(value, field.name))


def stages(wanted: list[Work]) -> list[list[Work]]:
    """All units that are needed, each once, in stages: a stage needs only what is in the stages before it."""
    depths: dict[str, tuple[int, Work]] = {}

    def visit(work: Work) -> int:
        key = work.key
        if key not in depths:
            depths[key] = (1 + max((visit(inner) for inner in needs(work)), default=-1), work)
        return depths[key][0]

    for work in wanted:
        visit(work)
    result: list[list[Work]] = [[] for _ in range(1 + max((depth for depth, _ in depths.values()), default=-1))]
    for depth, work in depths.values():
        result[depth].append(work)
    return result
