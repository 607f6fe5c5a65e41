"""The record of a long run: one line for each thing tried, in a file that is only appended to."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Log:
    """A file of JSON lines; the first describes the run, the others what was tried.

    Args:
        path: The file; it is made where it is not there.
        run: What the run is. A file of another run is refused.
    """

    def __init__(self, path: Path, run: dict[str, Any]) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = self._whole_lines()
        if not lines:
            path.write_text(json.dumps(run) + "\n")
        elif (found := json.loads(lines[0])) != run:
            raise SystemExit(f"{path} belongs to another run: {found}, not {run}. Choose another folder with --out.")

    def _whole_lines(self) -> list[str]:
        """Return the complete lines; a last line that a kill left unfinished is cut off."""
        if not self.path.exists():
            return []
        content = self.path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            os.truncate(self.path, len(whole))
        return whole.decode().splitlines()

    def records(self) -> Iterator[dict[str, Any]]:
        """Return what was tried so far."""
        yield from map(json.loads, self._whole_lines()[1:])

    def append(self, record: dict[str, Any]) -> None:
        """Append one record."""
        with self.path.open("a") as file:
            file.write(json.dumps(record) + "\n")
