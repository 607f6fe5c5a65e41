"""One exception for every error that a user can fix."""

import sys

from tangentlab._help import topic_of


class TangentError(ValueError):
    """A refusal: what is wrong, why it matters, and what to do about it.

    Each part is a sentence. They are separate so that a program can read them and the command line can format them.

    Args:
        what: The fact, with names and numbers.
        why: The reason for the refusal.
        remedy: What the user can do.
        topic: The entry of the page on troubleshooting, which ``tangentlab help TOPIC`` prints; None for the one that
            the words of ``what`` and the module that raises it belong to.

    Examples:
        >>> import tangentlab, torch
        >>> try:
        ...     tangentlab.ntk(torch.nn.Dropout(), torch.ones(3, 2))
        ... except tangentlab.TangentError as error:
        ...     print(error)
        The model has no parameter.
          Why: The tangent kernel is made of gradients with respect to parameters that require them.
          Remedy: Call requires_grad_(True) on those that should count.
          More: tangentlab help parameters
    """

    def __init__(self, what: str, why: str = "", remedy: str = "", *, topic: str | None = None) -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(what, why, remedy)
        self.topic = topic or topic_of(what, sys._getframe(1).f_globals.get("__name__", ""))

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"Why: {self.why}")
        if self.remedy:
            parts.append(f"Remedy: {self.remedy}")
        if self.topic:
            parts.append(f"More: tangentlab help {self.topic}")
        return "\n  ".join(parts)
