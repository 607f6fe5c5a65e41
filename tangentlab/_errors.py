"""One exception for everything a user can put right."""


class TangentError(ValueError):
    """A refusal: what is wrong, why it matters, and what to do about it.

    The three parts are kept apart so that a program can read them and the command line can lay them out.

    Args:
        what: The fact, with names and numbers.
        why: The reason it cannot be allowed.
        remedy: What the user can do.
    """

    def __init__(self, what: str, why: str = "", remedy: str = "") -> None:
        self.what, self.why, self.remedy = what, why, remedy
        super().__init__(what, why, remedy)

    def __str__(self) -> str:
        parts = [self.what]
        if self.why:
            parts.append(f"Why: {self.why}")
        if self.remedy:
            parts.append(f"Remedy: {self.remedy}")
        return "\n  ".join(parts)
