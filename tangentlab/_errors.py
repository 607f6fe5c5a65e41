"""One exception for every error that a user can fix."""


class TangentError(ValueError):
    """A refusal: what is wrong, why it matters, and what to do about it.

    Each part is a sentence. They are separate so that a program can read them and the command line can format them.

    Args:
        what: The fact, with names and numbers.
        why: The reason for the refusal.
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
