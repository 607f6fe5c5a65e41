"""The list of rules: which operations have compact factors."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from tangentlab.kernels.rules._use import Uses

Form = Literal["outer", "convolution", "lookup", "gradient"]
Rule = Callable[..., Uses]

RULES: dict[Callable[..., Any], Rule] = {}
"""From an operation to its rule. A rule takes a :class:`Call` and then just what the operation takes."""


@dataclass(frozen=True)
class RuleEntry:
    """A row of the published table.

    Attributes:
        operations: Names of the operations.
        example: Where they are used.
        form: What is kept of a sample: "outer" and "convolution" keep inputs and output gradients or, where that is
            cheaper, the gradient itself; "lookup" keeps indices and output gradients; "gradient" the gradient.
        summary: First line of the rule's docstring.
    """

    operations: tuple[str, ...]
    example: str
    form: Form
    summary: str


TABLE: list[RuleEntry] = []


def rule(*operations: Callable[..., Any], example: str, form: Form) -> Callable[[Rule], Rule]:
    """Register a rule for some operations."""

    def register(function: Rule) -> Rule:
        for operation in operations:
            RULES[operation] = function
        names = tuple(dict.fromkeys(getattr(o, "__name__", str(o)) for o in operations))
        summary = (function.__doc__ or "").strip().splitlines()[0]
        TABLE.append(RuleEntry(names, example, form, summary))
        return function

    return register
