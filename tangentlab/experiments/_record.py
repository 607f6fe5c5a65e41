"""Results on disk: table, figure and record."""

import io
import json
import os
import platform
import sys
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from tangentlab._deprecated import warn
from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_bytes, write_json, write_text
from tangentlab._reading import Unreadable, first_line, read_bytes, read_json
from tangentlab._version import __version__
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import Figure
from tangentlab.experiments._schema import FORMAT, fault, upgraded
from tangentlab.experiments._spec import Spec
from tangentlab.experiments._variant import result_name
from tangentlab.experiments._verdicts import Claim

_MOST_TABLE = 256 * 2**20
"""Bytes of a table; the largest published one has a million."""


@dataclass(frozen=True)
class Result:
    """A finished experiment.

    Attributes:
        id: Id of the experiment.
        folder: The folder of its files.
        table: The measurements.
        record: Spec, claims, versions, hardware, wall-clock and so on, as in ``record.json``.
        computed: Whether the experiment ran in this call; False if a finished result was found.
    """

    id: str
    folder: Path
    table: pd.DataFrame
    record: dict[str, Any]
    computed: bool

    @property
    def repeated(self) -> bool:
        """The former name of :attr:`computed`."""
        warn("Result.repeated", "Result.computed")
        return self.computed

    @property
    def variant(self) -> str:
        """The word that distinguishes it from other results of the same id; empty for none."""
        return str(self.record.get("variant", ""))

    @property
    def name(self) -> str:
        """``ID`` or ``ID.VARIANT``, which is also the path of its folder below ``out``."""
        return result_name(self.id, self.variant)

    def verdicts(self) -> dict[str, int]:
        """Count the claims by verdict."""
        counts: dict[str, int] = {}
        for claim in self.record["claims"]:
            counts[claim["verdict"]] = counts.get(claim["verdict"], 0) + 1
        return counts


def save(
    folder: Path,
    experiment: Experiment,
    spec: Spec,
    table: pd.DataFrame,
    figure: Figure,
    claims: list[Claim],
    provenance: dict[str, Any],
) -> dict[str, Any]:
    """Write ``table.csv``, ``figure.png``, ``figure.svg``, ``figure.json`` and last ``record.json``.

    The record is what makes a result finished, so a process killed in between leaves an unfinished one.

    Args:
        folder: The folder to write to.
        experiment: The experiment.
        spec: As it was run.
        table: Its measurements.
        figure: Its figure.
        claims: Its claims.
        provenance: Command, variant, wall-clock, data and work of this run.
    """
    make_folder(folder)
    (folder / "record.json").unlink(missing_ok=True)
    text = io.StringIO()
    table.to_csv(text, index=False)
    write_text(folder / "table.csv", text.getvalue())
    png, svg = figure.png(), figure.svg()
    write_bytes(folder / "figure.png", lambda file: file.write(png))
    write_text(folder / "figure.svg", svg)
    write_json(folder / "figure.json", figure.vega_lite())
    record = {
        "format": FORMAT,
        "id": experiment.id,
        "title": experiment.title,
        "shows": experiment.shows,
        "cost": experiment.cost[spec.preset],
        "deviations": list(experiment.deviations),
        "caption": figure.caption,
        "preset": spec.preset,
        "spec": spec.describe(),
        "seeds": list(spec.seed_list),
        "claims": [claim.as_dict() for claim in claims],
        "rows": len(table),
        "versions": versions(),
        "hardware": hardware(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **provenance,
    }
    write_json(folder / "record.json", record)
    return record


def load(folder: Path) -> Result | None:
    """Load a finished result; return None if there is none.

    Raises:
        TangentError: If the record is there and cannot be read.
    """
    path = folder / "record.json"
    if not path.exists():
        return None
    try:
        record = read_json(path)
        if wrong := fault(record):
            raise Unreadable(wrong)
        path = folder / "table.csv"
        table = read_table(read_bytes(path, _MOST_TABLE))
        if len(table) != record["rows"]:
            raise Unreadable(f"has {len(table):,} rows, and the record says {record['rows']:,}")
    except Unreadable as error:
        fact = str(error).removeprefix("cannot be read: ")
        raise TangentError(
            f"The result in {folder} cannot be read: {path.name} {fact}.",
            remedy="Remove the folder and rerun the experiment.",
        ) from error
    return Result(record["id"], folder, table, upgraded(record), computed=False)


def read_table(content: bytes) -> pd.DataFrame:
    """Return the table that a ``table.csv`` with this content holds.

    Raises:
        Unreadable: If it is no table.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Floats as written, in every version of pandas.
            table = pd.read_csv(io.StringIO(content.decode()), engine="python")
    except Exception as error:  # pandas fails on what is no table in nearly any way
        raise Unreadable(f"is no table: {first_line(error)}") from error
    if not isinstance(table.index, pd.RangeIndex):  # rows longer than the head, which pandas takes for names of rows
        raise Unreadable("is no table: its rows are longer than its head")
    return table


def matches(record: dict[str, Any], spec: Spec) -> bool:
    """Return whether a record belongs to this spec and this version of the package."""
    return record["spec"] == json.loads(json.dumps(spec.describe())) and record["versions"]["tangentlab"] == __version__


def versions() -> dict[str, str]:
    """Return the versions of the package and of the packages that affect its numbers."""
    names = ("torch", "numpy", "scipy", "scikit-learn", "pandas")
    return {
        "tangentlab": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in names},
    }


def hardware() -> dict[str, Any]:
    """Return processor, cores, memory and accelerators."""
    processor = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            named = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
            processor = named or processor
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 0
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gib": round(memory / 2**30, 1),
        "gpus": gpus,
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.release()}",
        "executable": Path(sys.executable).name,
    }
