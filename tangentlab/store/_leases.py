"""Leases: processes that share a store tell each other what they are computing, without a server or a lock.

A lease is a symbolic link to the name of the process that holds it, which is created atomically and fails if there is
one already. Leases only avoid double work: two processes that compute the same tile write the same bytes, atomically.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tangentlab._files import is_dead, process_name
from tangentlab.store._workers import WorkerState, worker_states

FOLDER = "claims"
"""The folder of leases in a store; its name and the suffix are those that earlier versions use."""
SUFFIX = ".claim"
ALIVE = ".alive"
_BEAT = 5.0
"""Seconds between two heartbeats."""
_STALE = 60.0
"""Seconds without a heartbeat after which a process counts as dead."""


class Leases:
    """The leases of this process in a folder. Entering starts its heartbeat, leaving releases everything.

    A process is alive while its own file in the folder is touched. Ages are differences of two file times of the same
    file system, so the clocks of the machines do not matter. On the same machine, the end of a process is noticed at
    once.

    Args:
        folder: The folder, which all processes see.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = process_name()
        self._held: set[str] = set()
        self._taking: set[str] = set()
        self._stop = threading.Event()
        self._heartbeat: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._arrive()
        self._stop.clear()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True)
        self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._heartbeat is not None:
            self._heartbeat.join()
        # Ctrl-C may have come between the acquisition of a lease and the note of it.
        for key in [*self._held, *filter(self._owns, self._taking - self._held)]:
            self.release(key)
        self._leave()

    def _arrive(self) -> None:
        """Show a first sign of life, and clear up after the dead."""
        for _ in range(100):  # a process that finished the store may be clearing the folder
            with suppress(FileNotFoundError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own.touch()
                break
        for path in self.folder.glob(f"*{SUFFIX}"):
            self._drop_if_stale(path)
        for path in self.folder.glob(f"*{ALIVE}"):
            if is_dead(path.stem):
                path.unlink(missing_ok=True)

    def _live(self) -> None:
        """Show a sign of life."""
        with suppress(OSError):
            self._own.touch()

    def _leave(self) -> None:
        """Remove the signs of life."""
        with suppress(OSError):
            self._own.unlink(missing_ok=True)

    @property
    def _own(self) -> Path:
        return self.folder / f"{self.name}{ALIVE}"

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            self._live()

    def take(self, key: str) -> bool:
        """Acquire a lease; return False if a living process holds it."""
        if key in self._held:
            return True
        self._taking.add(key)
        taken = self._acquire(key)
        if taken:
            self._held.add(key)
        self._taking.discard(key)
        return taken

    def _acquire(self, key: str) -> bool:
        path = self.folder / f"{key}{SUFFIX}"
        for _ in range(2):
            try:
                os.symlink(self.name, path)
            except FileExistsError:
                if not self._drop_if_stale(path):
                    return False
            except FileNotFoundError:  # a process finished the store and cleared the folder
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError:  # a file system without links: at worst, work is done twice
                return True
            else:
                return True
        return False

    def _owns(self, key: str) -> bool:
        """Return whether a lease is this process's, whatever it has noted."""
        with suppress(OSError):
            return os.readlink(self.folder / f"{key}{SUFFIX}") == self.name
        return False

    def release(self, key: str) -> None:
        """Release a lease."""
        with suppress(OSError):
            (self.folder / f"{key}{SUFFIX}").unlink(missing_ok=True)
        self._held.discard(key)

    def wait(self, key: str, done: Callable[[], bool]) -> bool:
        """Wait until another process is done or the lease is free; return True if this process now holds it."""
        pause = 0.005
        while not done():
            if self.take(key):
                if not done():
                    return True
                self.release(key)
                return False
            time.sleep(pause)
            pause = min(0.5, pause * 1.5)
        return False

    def clock(self) -> float:
        """Read the clock by which files are dated."""
        return file_clock(self.folder)

    def workers(self) -> tuple[WorkerState, ...]:
        """List the processes that hold leases or have left a sign of life."""
        held: Counter[str] = Counter()
        seen: dict[str, float] = {}
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(OSError):
                held[owner := os.readlink(path)] += 1
                seen[owner] = max(seen.get(owner, 0.0), path.lstat().st_mtime)
        for path in self.folder.glob(f"*{ALIVE}"):
            with suppress(OSError):
                seen[path.stem] = max(seen.get(path.stem, 0.0), path.stat().st_mtime)
        return worker_states(seen, held, self.clock(), _STALE)

    def _drop_if_stale(self, path: Path) -> bool:
        try:
            owner = os.readlink(path)
            stale = is_dead(owner)
            if not stale:
                since = path.lstat().st_mtime
                with suppress(FileNotFoundError):
                    since = max(since, (self.folder / f"{owner}{ALIVE}").stat().st_mtime)
                stale = self._now() - since > _STALE
            if stale:
                path.unlink(missing_ok=True)
            return stale
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _now(self) -> float:
        """Read the clock of the file system."""
        return _touched(self._own)


def file_clock(folder: Path) -> float:
    """Read the clock of the file system of a folder, or this machine's where nothing can be written."""
    if not folder.is_dir():
        return time.time()
    probe = folder / f"{process_name()}.clock"
    try:
        return _touched(probe)
    finally:
        with suppress(OSError):
            probe.unlink(missing_ok=True)


def _touched(path: Path) -> float:
    with suppress(OSError):
        path.touch()
        return path.stat().st_mtime
    return time.time()
