"""Publish results of experiments and write the page about them.

    python -m docs.build_results RUNS...      # publish finished results of run folders, then write the page
    python -m docs.build_results --add RUNS.. # add the seeds of run folders to what is published, then write the page
    python -m docs.build_results              # write the page of what is published
    python -m docs.build_results docs/results # judge and draw what is published again, by the rules of this version

``docs/results/index.md``, ``changes.md`` and ``report.html`` there are made from the records and tables in
``docs/results`` alone; ``notes.toml`` (explanations) and ``remaining.toml`` (what was not run) there
are written by hand.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from docs.published import LIMIT, RESULTS, add, check, publish, results, shrink
from docs.results_changes import page as changes
from docs.results_page import page
from tangentlab import TangentError, report
from tangentlab._files import write_bytes, write_json, write_text
from tangentlab.experiments import Figure
from tangentlab.experiments._judge import draw
from tangentlab.report._numbers import dot_plot


def write(folder: Path = RESULTS) -> None:
    """Write the page and the interactive report of the published results."""
    write_text(folder / "index.md", page(folder))
    if (folder / "before.json").exists():
        write_text(folder / "changes.md", changes(folder))
    if not results(folder):
        return
    if (panel := dot_plot(results(folder))) is not None:
        picture = shrink(Figure([panel]).png(scale=1.5))
        write_bytes(folder / "numbers.png", lambda file: file.write(picture))
    with tempfile.TemporaryDirectory() as temporary:
        for result in results(folder):
            copy = Path(temporary) / result.name
            copy.mkdir(parents=True)
            for name in ("table.csv", "record.json"):
                (copy / name).write_bytes((result.folder / name).read_bytes())
            write_json(copy / "figure.json", draw(result.record, result.table).vega_lite())
        report.build(temporary, folder / "report.html")


def main(arguments: list[str]) -> int:
    """Run the command; return 1 if there is a problem."""
    parser = argparse.ArgumentParser(prog="python -m docs.build_results", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="*", type=Path, help="--out folders of `tangentlab reproduce`")
    parser.add_argument(
        "--add", action="store_true", help="keep the seeds that are published, and add those of the runs"
    )
    parser.add_argument("--limit", type=float, default=LIMIT / 2**20, help="MiB of everything (%(default)g)")
    parser.add_argument("--tiny", action="store_true", help="publish results of the tiny preset too")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="another place than docs/results")
    options = parser.parse_args(arguments)
    try:
        presets = ("tiny", "small", "paper") if options.tiny else ("small", "paper")
        copy = add if options.add else publish
        for name in copy(options.runs, options.folder, presets=presets):
            print(name)
        write(options.folder)
        total = check(options.folder, int(options.limit * 2**20))
    except TangentError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(results(options.folder))} results, {total / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
