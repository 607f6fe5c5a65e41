"""A Slurm cluster of one node on this machine, from Debian's packages, in a folder of its own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
CONFIGURATION = """
ClusterName=tangentlab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=1
MinJobAge=300
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 RealMemory=16000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def require() -> None:
    """Skip, saying why, where there is no Slurm or this user cannot start it."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if absent:
        pytest.skip(f"Slurm is not installed: no {', '.join(absent)} (Debian: slurmctld slurmd slurm-client munge)")
    if os.geteuid() != 0:
        pytest.skip("slurmd runs jobs as their users and must be started by root")


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(folder: Path) -> Iterator[dict[str, str]]:
    """Start munged, slurmctld and slurmd; yield the environment in which Slurm's commands reach them."""
    folder.mkdir(mode=0o755, parents=True)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    host = socket.gethostname().partition(".")[0]
    configuration = folder / "slurm.conf"
    ports = {"control_port": _free_port(), "node_port": _free_port()}
    configuration.write_text(CONFIGURATION.format(host=host, folder=folder, **ports))
    environment = os.environ | {"SLURM_CONF": str(configuration), "PATH": _path()}
    munged = ["munged", "--foreground", "--force", "--num-threads=1", f"--key-file={key}"]
    munged += [f"--{part}={folder}/munge.{part.partition('-')[0]}" for part in ("socket", "pid-file", "log-file")]
    munged += [f"--seed-file={folder}/munge.seed"]
    started: list[subprocess.Popen[bytes]] = []
    try:
        for command in (munged, ["slurmctld", "-D", "-c"], ["slurmd", "-D", "-N", host]):
            with open(folder / f"{command[0]}.out", "wb") as out:
                started.append(subprocess.Popen(command, env=environment, stdout=out, stderr=out))
            if command is munged:
                _until(lambda: (folder / "munge.socket").exists(), "munged", folder)
        _until(lambda: _node_state(environment) == "idle", "slurmd", folder)
        yield environment
    finally:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(["scancel", "--me"], env=environment, capture_output=True, timeout=20, check=False)
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _node_state(environment: dict[str, str]) -> str:
    command = ["sinfo", "--noheader", "--format=%T"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout.strip()


def _until(ready: object, what: str, folder: Path, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not ready():  # type: ignore[operator]
        if time.monotonic() > deadline:
            logs = {path.name: path.read_text(errors="replace")[-1500:] for path in folder.glob("*.out")}
            pytest.fail(f"{what} does not start: {logs}")
        time.sleep(0.1)
