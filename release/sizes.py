"""``python -m release.sizes``: how many packages and megabytes the base and each extra install, as they are here.

Counts the distributions that the metadata of tangentlab leads to in the present environment, which must have all
extras (``make test`` installs them). An extra's row is what it adds to the base.
"""

import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

from release.bounds import FEATURES


def closure(name: str, extras: frozenset[str] = frozenset()) -> dict[str, Distribution]:
    """Return a distribution and all that it requires with these extras, by name."""
    found: dict[str, Distribution] = {}
    done, left = set(), [(name, extras)]
    while left:
        item = left.pop()
        if item in done:
            continue
        done.add(item)
        name, extras = item
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            continue
        found[re.sub(r"[-_.]+", "-", name).lower()] = dist
        for line in dist.requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                left.append((needed.name, frozenset(needed.extras)))
    return found


def megabytes(dists: list[Distribution]) -> float:
    """Return the size of the files of some distributions without compiled Python, in 10^6 bytes."""
    files = [(dist, file) for dist in dists for file in dist.files or () if file.suffix != ".pyc"]
    paths = {dist.locate_file(file) for dist, file in files}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6  # type: ignore[attr-defined]


def main() -> int:
    """Print the table."""
    base = closure("tangentlab")
    torch = megabytes([base["torch"]])
    print("| install | packages | MB installed |\n|---|---|---|")
    print(f"| `tangentlab` | {len(base)} | {megabytes(list(base.values())):.0f}, of which PyTorch {torch:.0f} |")
    for extra in sorted(FEATURES):
        more = {name: dist for name, dist in closure("tangentlab", frozenset({extra})).items() if name not in base}
        print(f"| `tangentlab[{extra}]` | {len(more)} more | {megabytes(list(more.values())):.0f} more |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
