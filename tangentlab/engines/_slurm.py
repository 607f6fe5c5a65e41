"""Job arrays of Slurm: their script, submitting it, and which of their tasks are queued."""

import subprocess
from collections.abc import Iterable, Sequence
from itertools import groupby

from tangentlab._errors import TangentError
from tangentlab.engines._resources import Resources

_PATIENCE = 60.0
"""Seconds that Slurm's controller may take to answer."""
_UNREACHABLE = ("configuration", "contact", "connect", "resolve", "authentication", "munge")
"""Words of Slurm's commands where there is no cluster to talk to."""


def array_of(numbers: Sequence[int]) -> str:
    """Write the numbers of an array's tasks as Slurm does: 0-3,7.

    Examples:
        >>> from tangentlab import engines
        >>> engines.array_of([0, 1, 2, 5])
        '0-2,5'

    See also:
        :func:`tangentlab.engines.slurm_script`.
    """
    parts = []
    for _, group in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        parts.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(parts)


def slurm_script(
    name: str, command: str, tasks: Sequence[int], resources: Resources, options: Iterable[str] = ()
) -> str:
    """Write the script of a job array.

    Args:
        name: The job's name, by which :func:`slurm_queue` finds it.
        command: A line of shell that executes one task; its number is ``$SLURM_ARRAY_TASK_ID``.
        tasks: The numbers of the tasks.
        resources: What each of them requests.
        options: Further options of sbatch ("--partition=long"), which prevail over those of the resources.

    A task that is preempted, or whose node fails, starts again (``--requeue``).

    Raises:
        TangentError: An option is not one line that begins with two dashes.
    """
    further = list(options)
    for option in further:
        if not option.startswith("--") or "\n" in option:
            raise TangentError(
                f"The option of sbatch is {option!r}.", "", "Write it as --name=value, for instance --partition=long."
            )
    own = {
        "--job-name": name,
        "--array": array_of(tasks),
        "--cpus-per-task": resources.cpus,
        "--mem": f"{resources.mebibytes}M",
        "--time": resources.time,
    }
    given = {option.partition("=")[0] for option in further}
    lines = [f"{key}={value}" for key, value in own.items() if key not in given]
    lines += ["--requeue", "--open-mode=append", *further]
    threads = f"export OMP_NUM_THREADS={resources.cpus} MKL_NUM_THREADS={resources.cpus}"
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), "", threads, f"exec {command}", ""])


def require_slurm() -> None:
    """Check that Slurm's commands are there, before anything is created for them.

    Cost: one call of ``sbatch --version``.

    Raises:
        TangentError: They are not.
    """
    _call(["sbatch", "--version"])


def slurm_submit(script: str) -> str:
    """Submit a script with sbatch and return the job's number.

    Cost: one call of ``sbatch``, which may take up to 60 s.

    Raises:
        TangentError: There is no sbatch, or it refuses the script.
    """
    return _call(["sbatch", "--parsable"], script).strip().partition(";")[0]


def slurm_queue(name: str) -> dict[int, str]:
    """Return the tasks of arrays with a name that are queued or running, and their states (PENDING, RUNNING).

    Cost: one call of ``squeue``, which may take up to 60 s.

    Raises:
        TangentError: There is no squeue, or the controller does not answer.
    """
    said = _call(["squeue", "--me", "--noheader", "--array", f"--name={name}", "--format=%K %T"])
    tasks = (line.split() for line in said.splitlines())
    return {int(task[0]): task[1] for task in tasks if len(task) == 2 and task[0].isdecimal()}


def _call(command: list[str], text: str | None = None) -> str:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except FileNotFoundError as error:
        raise TangentError(
            f"There is no {command[0]} here.",
            "It is Slurm's command; this machine is not a node of a Slurm cluster.",
            "Run this on a login node. --dry-run prints the script without Slurm.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise TangentError(
            f"{command[0]} has not answered for {_PATIENCE:.0f} s.", "Slurm's controller is busy or down.", "Try again."
        ) from error
    if done.returncode:
        why = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        remedy = "Change the request (--sbatch, --time, --cpus)."
        if any(words in why.lower() for words in _UNREACHABLE):
            remedy = (
                "Run this on a login node, where sinfo shows the cluster; its administrators can say why it does not."
            )
        raise TangentError(f"{command[0]} failed.", f"{why.rstrip('.')}.", remedy)
    return done.stdout
