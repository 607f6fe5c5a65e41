"""Claims: processes that share a store tell each other what they are doing, without a server or a lock.

A claim is a symbolic link to the name of the process that works on something: made in one step, and only where there
is none. It only saves work: two processes that nevertheless compute the same tile write the same bytes, atomically.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tangentlab._files import is_dead, process_name

_BEAT = 5.0
"""Seconds between two signs of life."""
_STALE = 60.0
"""Seconds without one after which a process counts as dead."""


class Claims:
    """What this process has claimed in a folder; entering starts its signs of life, leaving gives everything back.

    A process is alive while its own file in the folder is touched. Ages are differences of two file times of the same
    file system, so the clocks of the machines do not matter. On the same machine a process that ended is seen at once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = process_name()
        self._held: set[str] = set()
        self._stop = threading.Event()
        self._beats: threading.Thread | None = None

    def __enter__(self) -> Self:
        for _ in range(100):  # somebody who finished the store may be clearing the folder
            with suppress(FileNotFoundError):
                self.folder.mkdir(parents=True, exist_ok=True)
                self._own.touch()
                break
        for path in self.folder.glob("*.claim"):
            self._drop_if_stale(path)
        for path in self.folder.glob("*.alive"):
            if is_dead(path.stem):
                path.unlink(missing_ok=True)
        self._stop.clear()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._beats is not None:
            self._beats.join()
        for key in list(self._held):
            self.release(key)
        with suppress(OSError):
            self._own.unlink(missing_ok=True)

    @property
    def _own(self) -> Path:
        return self.folder / f"{self.name}.alive"

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT):
            with suppress(OSError):
                self._own.touch()

    def take(self, key: str) -> bool:
        """Claim something; False where a living process has it."""
        path = self.folder / f"{key}.claim"
        if key in self._held:
            return True
        for _ in range(2):
            try:
                os.symlink(self.name, path)
            except FileExistsError:
                if not self._drop_if_stale(path):
                    return False
            except FileNotFoundError:  # somebody finished the store and cleared the folder
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError:  # a file system without links: work is done twice at worst
                return True
            else:
                self._held.add(key)
                return True
        return False

    def release(self, key: str) -> None:
        """Give a claim back."""
        self._held.discard(key)
        with suppress(OSError):
            (self.folder / f"{key}.claim").unlink(missing_ok=True)

    def wait(self, key: str, done: Callable[[], bool]) -> bool:
        """Wait until something is done by another, or can be claimed; True if it now is this process's to do."""
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

    def _drop_if_stale(self, path: Path) -> bool:
        try:
            owner = os.readlink(path)
            stale = is_dead(owner)
            if not stale:
                since = path.lstat().st_mtime
                with suppress(FileNotFoundError):
                    since = max(since, (self.folder / f"{owner}.alive").stat().st_mtime)
                stale = self._now() - since > _STALE
            if stale:
                path.unlink(missing_ok=True)
            return stale
        except FileNotFoundError:
            return True
        except OSError:
            return False

    def _now(self) -> float:
        """The file system's clock, at most a beat old."""
        with suppress(OSError):
            self._own.touch()
            return self._own.stat().st_mtime
        return time.time()
