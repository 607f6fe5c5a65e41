"""``python -m soak``: architectures, kills and files, and one table at the end."""

import argparse
import importlib
import importlib.util
from pathlib import Path

from soak import architectures, kills
from soak.summary import Row, markdown, text


def files(count: int, seed: int, out: Path) -> list[Row]:
    """Test every reader on damaged files with ``soak.files``, and return the rows of the table."""
    if importlib.util.find_spec("soak.files") is None:
        print("soak.files is not there: no files are tried.")
        return []
    return list(importlib.import_module("soak.files").run(count, seed, out))


def main(arguments: list[str] | None = None) -> int:
    """Run the selected tests; the exit code is 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--architectures", type=int, default=10_000, metavar="N")
    parser.add_argument("--kills", type=int, default=1_000, metavar="N")
    parser.add_argument("--files", type=int, default=100_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="for the architectures")
    parser.add_argument("--out", type=Path, default=Path("soak-out"), help="progress, reproducers and the table")
    options = parser.parse_args(arguments)
    seed, out = options.seed, options.out
    table: list[Row] = []
    if options.architectures:
        table += architectures.run(options.architectures, seed, out, processes=options.processes)
    if options.kills:
        table += kills.run(options.kills, seed, out)
    if options.files:
        table += files(options.files, seed, out)
    (out / "summary.md").write_text(markdown(table))
    (out / "summary.txt").write_text(text(table) + "\n")
    print(text(table))
    return int(any(row.wrong for row in table))


if __name__ == "__main__":
    raise SystemExit(main())
