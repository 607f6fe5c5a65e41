"""Checks of numbers that users pass, and of the memory that results need."""

from numbers import Integral
from typing import Any

import torch

from tangentlab._errors import TangentError
from tangentlab._memory import available, parse_bytes, show_bytes

_SHARE = 0.6
"""The part of the free memory that may be used, unless there is a budget; as for a kernel."""


def check_number(name: str, value: Any, least: float) -> float:
    """Return a finite number of at least ``least``.

    Raises:
        TangentError: It is not one.
    """
    good = isinstance(value, int | float) and not isinstance(value, bool) and least <= value < float("inf")
    if not good:
        raise TangentError(f"{name}={value!r}.", remedy=f"Pass a finite number of at least {least:g}.")
    return float(value)


def check_whole(name: str, value: Any, least: int) -> int:
    """Return a whole number of at least ``least``; those of NumPy are taken as well.

    Raises:
        TangentError: It is not one.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise TangentError(f"{name}={value!r}.", remedy=f"Pass a whole number of at least {least}.")
    return int(value)


def room(budget: int | float | str | None) -> float:
    """Return the bytes that may be used: the budget, or a part of the free memory."""
    return _SHARE * available(torch.device("cpu")) if budget is None else parse_bytes(budget)


def check_memory(what: str, size: float, budget: int | float | str | None, remedy: str) -> None:
    """Refuse what does not fit into memory, before anything is computed.

    Args:
        what: What needs the memory, as the subject of a sentence.
        size: Its bytes.
        budget: The user's memory budget, or None.
        remedy: What to do instead.

    Raises:
        TangentError: It does not fit.
    """
    most = room(budget)
    if size > most:
        raise TangentError(f"{what} {show_bytes(size)}, and {show_bytes(most)} may be used.", remedy=remedy)
