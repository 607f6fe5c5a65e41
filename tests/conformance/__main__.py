"""The table of families, comparisons and refusals: ``python -m tests.conformance [kind ...]``."""

import importlib.util
import sys
import time
import warnings

import pandas as pd
import torch

from tests.conformance.check import TOLERANCE, Verdict, examine
from tests.conformance.family import Family
from tests.conformance.precision import ROUNDING, computes_in_float32, float64_throughout
from tests.conformance.registry import FAMILIES


def verdicts(family: Family) -> list[tuple[Verdict, float]]:
    """As the network is and, where it rounds to float32 inside, in float64 throughout, each with its tolerance."""
    problem = family.problem()
    rounded = computes_in_float32(problem)
    found = [(examine(problem), ROUNDING if rounded else TOLERANCE)]
    if rounded:
        with float64_throughout():
            found.append((examine(family.problem()), TOLERANCE))
    return found


def row(family: Family) -> dict[str, object]:
    """What came of one family."""
    start = time.monotonic()
    counts: dict[str, object] = {"kind": family.kind, "family": family.name}
    try:
        found = verdicts(family)
    except Exception as error:
        print(f"{family.name}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)
        return counts | {"errors": 1}
    wrong = [f"{name} {error:.1e}" for v, limit in found for name, error in v.wrong(limit).items()]
    refusals = {f"{part}: {error.what}" for v, _ in found for part, error in v.refusals.items()}
    seconds = time.monotonic() - start
    print(f"{family.name}: {seconds:.1f} s {', '.join(wrong) or 'right'} {' '.join(sorted(refusals))}", flush=True)
    return counts | {
        "comparisons": sum(len(v.errors) for v, _ in found),
        "wrong": len(wrong),
        "refused": int(bool(refusals)),
    }


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    chosen = [f for f in FAMILIES if len(sys.argv) == 1 or f.kind in sys.argv[1:] or f.name in sys.argv[1:]]
    table = pd.DataFrame([row(family) for family in chosen if importlib.util.find_spec(family.package)])
    numbers = [name for name in ("comparisons", "wrong", "refused", "errors") if name in table]
    totals = table.groupby("kind")[numbers].sum().astype(int)
    totals.insert(0, "families", table.groupby("kind").size())
    totals.loc["all"] = totals.sum()
    print(totals.to_string())


if __name__ == "__main__":
    main()
