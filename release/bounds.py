"""The dependencies that pyproject.toml declares, and the lowest version of each."""

import tomllib
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
FEATURES = ("cloud", "dask", "gp", "huggingface", "lightning", "plot", "report", "slurm")
"""The extras for users; the others are for working on tangentlab."""


def project() -> dict[str, Any]:
    """Return the table ``[project]``."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def declared(*extras: str) -> list[Requirement]:
    """Return the requirements of the base, and of some extras with what those include."""
    table = project()
    wanted = [Requirement(line) for line in table["dependencies"]]
    for extra in extras:
        for line in table["optional-dependencies"][extra]:
            requirement = Requirement(line)
            wanted += [requirement] if requirement.name != table["name"] else declared(*sorted(requirement.extras))
    return list({str(requirement): requirement for requirement in wanted}.values())


def lower_bound(requirement: Requirement) -> str:
    """Return the version after ``>=``.

    Raises:
        ValueError: There is none, or more than one.
    """
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"{requirement} must have one lower bound.")
    return bounds[0]


def lowest(*extras: str) -> list[str]:
    """Return one pip constraint per dependency except torch: exactly its lower bound, for instance ``numpy==1.26``."""
    return [f"{r.name}=={lower_bound(r)}" for r in declared(*extras) if r.name != "torch"]


def pinned_torch() -> str:
    """Return the line of requirements.txt that pins torch."""
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return next(line for line in lines if line.startswith("torch=="))
