"""``python -m release``: build both distributions, check their metadata, and use them in empty environments."""

import argparse
import json
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

from release.bounds import FEATURES, ROOT, lowest, pinned_torch
from release.environment import Case, Failure, Outcome, check, run


def cases(torch: str) -> list[Case]:
    """Return what is tried: the wheel with the newest and the lowest dependencies, alone and with extras; the sdist."""
    return [
        Case("newest", "whl", (), (torch,)),
        Case("lowest", "whl", (), (torch, *lowest())),
        Case("sdist", "tar.gz", (), (torch,)),
        Case("newest-extras", "whl", FEATURES, (torch,)),
        Case("lowest-extras", "whl", FEATURES, (torch, *lowest(*FEATURES))),
    ]


def build(dist: Path) -> None:
    """Build wheel and sdist from the checkout, and check that their descriptions can be rendered."""
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(dist.iterdir()))


def row(outcome: Outcome) -> str:
    """Return the row of the table."""
    seconds, megabytes = outcome.seconds, [outcome.downloaded / 1e6, outcome.installed / 1e6]
    first = outcome.checked["seconds_to_first_kernel"]
    numbers = [*megabytes, seconds["download"], seconds["install"], first, seconds["checks"]]
    return f"| {outcome.case.name} | {outcome.packages} | {' | '.join(f'{number:.0f}' for number in numbers)} |"


def main(arguments: list[str] | None = None) -> int:
    """Run the checks; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("release-out"), help="files, environments and results")
    parser.add_argument("--torch", default=pinned_torch(), help="constraint on torch (default: %(default)s)")
    parser.add_argument("--only", nargs="*", metavar="CASE", help="names of environments; none for the build alone")
    parser.add_argument("--keep", action="store_true", help="keep the environments")
    options = parser.parse_args(arguments)
    chosen = [case for case in cases(options.torch) if options.only is None or case.name in options.only]
    dist = options.out.absolute() / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    failed = []
    try:
        build(dist)
    except Failure as failure:
        print(f"build: failed\n{failure}")
        return 1
    print(*(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB" for path in sorted(dist.iterdir())), sep="\n")
    print(
        "| environment | packages | MB downloaded | MB installed | s download | s install | s to a kernel | s checks |"
    )
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case in chosen:
        place = options.out.absolute() / case.name
        shutil.rmtree(place, ignore_errors=True)
        try:
            outcome = check(case, dist, options.out.absolute())
        except Failure as failure:
            failed.append(case.name)
            print(f"{case.name}: failed\n{failure}", flush=True)
            continue
        print(row(outcome), flush=True)
        (options.out / f"{case.name}.json").write_text(json.dumps(asdict(outcome), indent=1) + "\n")
        if not options.keep:
            shutil.rmtree(place)
    print(f"Failed: {', '.join(failed)}." if failed else "Everything passed.")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
