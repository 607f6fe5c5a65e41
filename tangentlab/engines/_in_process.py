"""Executing tasks in this process."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from tangentlab.engines._base import Engine

T = TypeVar("T")


class InProcess(Engine):
    """An engine that executes tasks in this process, one after the other, with all threads of PyTorch. The default."""

    here = True

    def run(self, tasks: Sequence[Callable[[], T]]) -> Iterator[tuple[int, T]]:
        for number, task in enumerate(tasks):
            yield number, task()

    def __repr__(self) -> str:
        return "InProcess()"
