"""Results that are published with the project: what is copied from runs, and how it is read again.

``docs/results/PAPER/NAME/`` holds ``table.csv`` as the run wrote it, ``record.json`` without what belongs to the
machine it ran on, and ``figure.png``. Claims and figure are derived from the table anew, by the rules of this version.
"""

import io
import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from docs.replicates import join, new_seeds
from tangentlab import TangentError
from tangentlab._files import make_folder, write_bytes, write_json
from tangentlab.experiments import Result, available, get
from tangentlab.experiments._judge import draw, judge
from tangentlab.experiments._record import load, read_table

RESULTS = Path(__file__).resolve().parent / "results"
LIMIT = 10 * 2**20
DATA, OUT = "DIR", "RUNS"
# Folders that are somebody's machine. Not preceded by a character of an address or a path that goes on.
MACHINE = re.compile(r"(?<![\w./:~])/(?:tmp|home|root|work|var|mnt|media|srv|opt|data|scratch|Users)/[\w.-]+")
_SWITCHES = ("-v", "--verbose", "-q", "--quiet", "--json", "--again", "--no-again")
_PLACES = ("--data-dir", "--out", "--workers")


@dataclass(frozen=True)
class Remaining:
    """An experiment that was not run.

    Attributes:
        experiment: Its id.
        missing: What.
        cost: What it would take.
        command: How to run it.
    """

    experiment: str
    missing: str
    cost: str
    command: str


def results(folder: Path = RESULTS) -> list[Result]:
    """Return all published results, in the order of the papers."""
    order = {experiment.id: i for i, experiment in enumerate(available())}
    found = [load(path.parent) for path in sorted(folder.glob("*/*/record.json"))]
    return sorted((result for result in found if result is not None), key=lambda r: (order[r.id], r.variant))


def publish(
    runs: Iterable[Path], folder: Path = RESULTS, *, presets: tuple[str, ...] = ("small", "paper")
) -> list[str]:
    """Copy the finished results of run folders, each over an earlier one of the same name.

    Args:
        runs: The ``--out`` folders of ``reproduce``.
        folder: Where to.
        presets: Which are worth it; others are left out.

    Returns:
        The names of the results that were copied.

    Raises:
        TangentError: If two of them have one name, or a machine's path is left in one.
    """
    places: dict[str, Path] = {}
    for run in runs:
        for path in sorted(Path(run).glob("*/*/record.json")):
            result = load(path.parent)
            if result is None or result.record["preset"] not in presets:
                continue
            if result.name in places:
                raise TangentError(
                    f"{places[result.name]} and {path.parent} are both results of {result.name}.",
                    remedy="Leave one of their folders out, or run one of them again with `--variant NAME`.",
                )
            places[result.name] = path.parent
            _write(result.record, (path.parent / "table.csv").read_bytes(), folder / result.name)
    return list(places)


def add(runs: Iterable[Path], folder: Path = RESULTS, *, presets: tuple[str, ...] = ("small", "paper")) -> list[str]:
    """Add the seeds of run folders to the published results of the same names; publish results that are new.

    Args:
        runs: The ``--out`` folders of ``reproduce``, each with other seeds. Seeds that are published are left out.
        folder: Where to.
        presets: Which are worth it; others are left out.

    Returns:
        The names of the results that have more seeds now.

    Raises:
        TangentError: If results of one name differ in more than their seeds, or the seeds are not consecutive.
    """
    found: dict[str, list[Result]] = {}
    for run in runs:
        for path in sorted(Path(run).glob("*/*/record.json")):
            result = load(path.parent)
            if result is not None and result.record["preset"] in presets:
                found.setdefault(result.name, []).append(result)
    changed = []
    for name, others in found.items():
        there = load(folder / name)
        if more := new_seeds(there, others):
            _write(*join(more if there is None else [there, *more]), folder / name)
            changed.append(name)
    return changed


def _write(record: dict[str, Any], content: bytes, target: Path) -> None:
    """Write a record, judged by the rules of this version, its ``table.csv`` with this content, and the figure."""
    record, table = clean(record), read_table(content)
    record["claims"] = [claim.as_dict() for claim in judge(record, table)]
    figure = draw(record, table)
    record["caption"] = figure.caption
    text = json.dumps(record)
    if left := MACHINE.search(text):
        raise TangentError(f"The record of {record['id']} has a path of this machine: {left[0]}.")
    make_folder(target)
    picture = shrink(figure.png(scale=1.5))
    write_bytes(target / "table.csv", lambda file: file.write(content))
    write_bytes(target / "figure.png", lambda file: file.write(picture))
    write_json(target / "record.json", record)


def clean(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the machine's folders: the command as a user types it, data sets in ``DIR``."""
    kept = {name: value for name, value in record.items() if name != "program"}
    kept["variant"] = record.get("variant", "")
    kept["command"] = command(record["command"])
    kept["data"] = {
        name: {**entry, "source": re.sub(r"(?<= in )/(?:[^/]+/)*(?=[^/]+$)", f"{DATA}/", entry["source"])}
        for name, entry in record["data"].items()
    }
    return kept


def command(text: str) -> str:
    """Return a command without options that do not affect the result, and with names in place of folders."""
    words = iter(shlex.split(text))
    kept: list[str] = []
    for word in words:
        option, sign, _ = word.partition("=")
        if option in _PLACES:
            if not sign:
                next(words, None)
        elif word not in _SWITCHES:
            kept.append(word)
    return shlex.join([*kept, "--data-dir", DATA, "--out", OUT])


def shrink(png: bytes) -> bytes:
    """Reduce the picture to 256 colors, enough for a diagram and a third of the bytes."""
    drawn = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256).save(drawn, "png", optimize=True)
    return drawn.getvalue()


def notes(folder: Path = RESULTS) -> dict[str, list[str]]:
    """Load handwritten explanations from ``notes.toml``, by the result's name.

    Raises:
        TangentError: For a note on a result that is not published.
    """
    entries = _toml(folder / "notes.toml")
    known = {result.name for result in results(folder)}
    for name, entry in entries.items():
        if name not in known:
            raise TangentError(f"notes.toml explains {name!r}, which is not published.", remedy="Correct its name.")
        if set(entry) != {"notes"} or not all(isinstance(text, str) for text in entry["notes"]):
            raise TangentError(f"notes.toml: {name!r} needs a list of texts.", remedy='Write notes = ["...", "..."].')
    return {name: list(entry["notes"]) for name, entry in entries.items()}


def remaining(folder: Path = RESULTS) -> list[Remaining]:
    """Return what was not run: the entries of ``remaining.toml``, then every id without a result that it does not name.

    Raises:
        TangentError: For an entry with a wrong field, an unknown id, or a command that is not of its experiment.
    """
    written = []
    for entry in _toml(folder / "remaining.toml").get("remaining", []):
        if set(entry) != {"experiment", "missing", "cost", "command"}:
            raise TangentError(
                f"remaining.toml: an entry has {', '.join(sorted(entry)) or 'nothing'}.",
                remedy="Give experiment, missing, cost and command.",
            )
        item = Remaining(**entry)
        get(item.experiment)
        if shlex.split(item.command)[:3] != ["tangentlab", "reproduce", item.experiment]:
            raise TangentError(f"remaining.toml: {item.command!r} does not run {item.experiment}.")
        written.append(item)
    named = {item.experiment for item in written} | {result.id for result in results(folder)}
    automatic = [
        Remaining(
            experiment.id,
            "Everything; no result of it is here.",
            experiment.cost["paper"],
            f"tangentlab reproduce {experiment.id} --preset paper --data-dir {DATA} --out {OUT}",
        )
        for experiment in available()
        if experiment.id not in named
    ]
    order = {experiment.id: i for i, experiment in enumerate(available())}
    return sorted([*written, *automatic], key=lambda item: order[item.experiment])


def check(folder: Path = RESULTS, limit: int = LIMIT) -> int:
    """Return the size in bytes of all published files.

    Raises:
        TangentError: If that is more than the limit, a file is of another kind, or a text has a machine's path.
    """
    total = 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total += path.stat().st_size
        if path.suffix not in (".md", ".toml", ".json", ".csv", ".png", ".html"):
            raise TangentError(f"{path} is neither a table, a picture nor a record.", remedy="Remove it.")
        if path.suffix != ".png" and (left := MACHINE.search(path.read_text())):
            raise TangentError(f"{path} has a path of a machine: {left[0]}.", remedy="Publish the result again.")
    if total > limit:
        largest = sorted(folder.rglob("*.*"), key=lambda path: -path.stat().st_size)[:5]
        names = ", ".join(f"{path.relative_to(folder)} {path.stat().st_size / 2**20:.1f}" for path in largest)
        raise TangentError(
            f"The published results are {total / 2**20:.1f} MiB, more than {limit / 2**20:.1f}.",
            why=f"The largest, in MiB: {names}.",
            remedy="Publish fewer of them, or raise the limit with --limit.",
        )
    return total


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text()) if path.exists() else {}
    except tomllib.TOMLDecodeError as error:
        raise TangentError(f"{path.name} cannot be read: {error}.") from error
