"""Running experiments: from an id to a table, a figure and a record on disk."""

import os
import sys
import time
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from tangentlab._errors import TangentError
from tangentlab._files import make_folder
from tangentlab.experiments import _record
from tangentlab.experiments._context import Context, Settings
from tangentlab.experiments._experiment import Experiment
from tangentlab.experiments._figure import converter
from tangentlab.experiments._record import Result
from tangentlab.experiments._registry import get
from tangentlab.experiments._spec import PRESETS, Spec
from tangentlab.experiments._variant import check_variant, result_name

WORK_FOLDER = "work"


def spec_of(experiment: Experiment, preset: str, overrides: Mapping[str, Any] | None = None) -> Spec:
    """Return the experiment's spec of a preset, with other values of some fields."""
    if preset not in PRESETS:
        raise TangentError(f"There is no preset {preset!r}.", remedy=f"Choose one of {', '.join(PRESETS)}.")
    base: Spec = experiment.presets[preset]
    return base.override(overrides or {})


def open_context(
    out: str | os.PathLike[str],
    *,
    data_dir: str | os.PathLike[str] | None = None,
    device: str = "cpu",
    workers: int = 1,
    executor: Executor | None = None,
    progress: bool | None = None,
) -> Context:
    """Open a context whose cache of finished work is in ``out/work``.

    Cost: creating the folder. Processes start with the first units of work.

    Args:
        out: Folder of the results.
        data_dir: Folder of the data sets.
        device: Device of the networks.
        workers: Number of processes that share the work.
        executor: Any ``concurrent.futures`` executor instead.
        progress: Whether to show progress bars; None for "on a terminal".
    """
    folder = make_folder(out)
    data_folder = None if data_dir is None else os.fspath(data_dir)
    quiet = progress if workers == 1 and executor is None else False
    settings = Settings(str(folder / WORK_FOLDER), data_folder, device, progress=quiet)
    return Context(settings, workers=workers, executor=executor, progress=progress)


def reproduce(
    name: str,
    preset: str = "tiny",
    *,
    out: str | os.PathLike[str] = "runs",
    overrides: Mapping[str, Any] | None = None,
    variant: str = "",
    data_dir: str | os.PathLike[str] | None = None,
    workers: int = 1,
    executor: Executor | None = None,
    again: bool = False,
    progress: bool | None = None,
    context: Context | None = None,
    command: str | None = None,
) -> Result:
    """Run an experiment and write its table, figure and record to ``out/PAPER/NAME`` or ``out/PAPER/NAME.VARIANT``.

    A result of the same spec that is there already is returned as it is. Units of work that were finished, by this
    or another experiment, are taken from ``out/work``; a training run that was interrupted continues.

    Cost: ``get(name).cost[preset]`` says it in words. A finished result is only read.

    Args:
        name: The id, for example ``"ortiz2021/fig2"``.
        preset: ``"tiny"``, ``"small"`` or ``"paper"``.
        out: Folder of the results.
        overrides: Other values of the spec's fields, as values or as strings.
        variant: A word that distinguishes this result from others of the same id, which are not replaced.
        data_dir: Folder of the data sets, as for :func:`tangentlab.data.load`.
        workers: Number of processes that share the work.
        executor: Any ``concurrent.futures`` executor instead.
        again: Whether to run it even if there is a finished result; finished units of work are still used.
        progress: Whether to show progress bars; None for "on a terminal".
        context: A context whose cache, data and workers to use, instead of the options above.
        command: The command, for the record.

    Raises:
        TangentError: For an unknown id, preset or field, a variant that cannot name a folder, missing data, a
            folder that cannot be written to, and without the extra ``tangentlab[report]``.
    """
    experiment = get(name)
    check_variant(variant)
    spec = spec_of(experiment, preset, overrides)
    folder = make_folder(out) / result_name(name, variant)
    found = _record.load(folder)
    if found is not None and not again and _record.matches(found.record, spec):
        return found
    converter()  # before the computation, or a long one would end without its figure
    shared = context or open_context(
        out, data_dir=data_dir, device=spec.device, workers=workers, executor=executor, progress=progress
    )
    run = shared.for_run(spec.device)
    started = time.monotonic()
    try:
        table = experiment.run(spec, run)
    finally:
        if context is None:
            shared.close()
    figure = experiment.plot(table, spec)
    claims = experiment.judge(table, spec)
    provenance = {
        "command": command or f"tangentlab reproduce {name} --preset {preset}" + _options(overrides, variant),
        "variant": variant,
        "seconds": round(time.monotonic() - started, 3),
        "work_seconds": round(run.work_seconds(), 1),
        "work": {"computed": len(run.computed), "reused": len(run.reused)},
        "data": run.data(),
        "program": Path(sys.argv[0]).name if sys.argv else "",
    }
    record = _record.save(folder, experiment, spec, table, figure, claims, provenance)
    return Result(name, folder, table, record, computed=True)


def _options(overrides: Mapping[str, Any] | None, variant: str) -> str:
    def text(value: Any) -> str:
        return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)

    settings = "".join(f" --set {name}={text(value)}" for name, value in (overrides or {}).items())
    return settings + (f" --variant {variant}" if variant else "")
