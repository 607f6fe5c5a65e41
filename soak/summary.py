"""The table at the end."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One kind of trial.

    Attributes:
        kind: What was tried.
        tried: How often.
        wrong: How often the result was wrong: another number, other bits, an error that is no refusal.
        refused: How often it was refused with a clear message.
        seconds: Time that it took.
    """

    kind: str
    tried: int
    wrong: int
    refused: int
    seconds: float

    def cells(self) -> tuple[str, ...]:
        minutes, seconds = divmod(round(self.seconds), 60)
        return self.kind, f"{self.tried:,}", f"{self.wrong:,}", f"{self.refused:,}", f"{minutes}:{seconds:02}"


HEAD = ("kind", "tried", "wrong", "refused", "time (min:s)")


def text(rows: Sequence[Row]) -> str:
    """Return the table for a terminal."""
    table = [HEAD, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(HEAD))]
    rule = "  ".join("-" * width for width in widths)
    lines = [
        "  ".join(
            cell.rjust(w) if column else cell.ljust(w)
            for column, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in table
    ]
    return "\n".join([lines[0], rule, *lines[1:]])


def markdown(rows: Sequence[Row]) -> str:
    """Return the table for a page."""
    lines = ["| " + " | ".join(HEAD) + " |", "| --- |" + " ---: |" * (len(HEAD) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row.cells()) + " |" for row in rows)]) + "\n"
