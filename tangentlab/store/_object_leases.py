"""Leases in an object store, by conditional writes."""

import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from tangentlab._errors import TangentError
from tangentlab._files import is_dead
from tangentlab.store import _leases
from tangentlab.store._leases import Leases
from tangentlab.store._workers import WorkerState, worker_states

if TYPE_CHECKING:
    from tangentlab.store._bucket import Bucket


class ObjectLeases(Leases):
    """The leases of this process in an object store.

    A lease is an object with the name of its holder. It is created only if there is none, which the service guarantees.
    The lease of a dead process is overwritten only if it is still the version that was found dead, so that one process
    takes it over. The heartbeat overwrites an object of the process's own, under the same condition. Ages are
    differences of two times of the service, so the clocks of the machines do not matter.

    Args:
        bucket: The store.
        folder: The common part of the names of leases.
    """

    def __init__(self, bucket: "Bucket", folder: str) -> None:
        super().__init__(Path(folder))
        self.bucket, self.prefix = bucket, folder
        self._version: object = None

    def _name(self, key: str) -> str:
        return f"{self.prefix}/{key}{_leases.SUFFIX}"

    @property
    def _sign(self) -> str:
        return f"{self.prefix}/{self.name}{_leases.ALIVE}"

    def _arrive(self) -> None:
        self._live()
        for name in list(self.bucket.names(self.prefix)):
            if name.endswith(_leases.ALIVE) and is_dead(Path(name).stem):
                self.bucket.remove(name)

    def _live(self) -> None:
        with suppress(TangentError):  # the service is down: at worst, this process counts as dead
            content = f"{time.monotonic_ns()}".encode()  # a version of its own
            if self._version is None or not self.bucket.replace(self._sign, content, self._version):
                self.bucket.write(self._sign, content)  # a process that finished the store cleared it
            entry = self.bucket.stat(self._sign)
            self._version = None if entry is None else entry.version

    def _leave(self) -> None:
        with suppress(TangentError):
            self.bucket.remove(self._sign)

    def _acquire(self, key: str) -> bool:
        mine = self.name.encode()
        for _ in range(2):
            if self.bucket.create(self._name(key), mine):
                return True
            found = self._holder(key)
            if found is None:
                continue  # it was released meanwhile
            owner, version, since = found
            if owner == self.name:  # the answer to the first attempt was lost, and it was repeated
                return True
            if not self._is_stale(owner, since):
                return False
            if self.bucket.replace(self._name(key), mine, version):
                return True
        return False

    def _owns(self, key: str) -> bool:
        with suppress(TangentError):
            found = self._holder(key)
            return found is not None and found[0] == self.name
        return False

    def release(self, key: str) -> None:
        """Release a lease."""
        with suppress(TangentError):
            self.bucket.remove(self._name(key))
        self._held.discard(key)

    def clock(self) -> float:
        """Read the clock of the service."""
        probe = f"{self.prefix}/{self.name}.clock"
        with suppress(TangentError):  # for instance if nothing may be written
            self.bucket.write(probe, b"")
            entry = self.bucket.stat(probe)
            self.bucket.remove(probe)
            if entry is not None:
                return entry.time
        return time.time()

    def workers(self) -> tuple[WorkerState, ...]:
        """List the processes that hold leases or have left a sign of life."""
        held: Counter[str] = Counter()
        seen: dict[str, float] = {}
        for name, entry in list(self.bucket.entries(self.prefix)):
            if name.endswith(_leases.SUFFIX):
                with suppress(FileNotFoundError):
                    owner = bytes(self.bucket.read(name)).decode()
                    held[owner] += 1
                    seen[owner] = max(seen.get(owner, 0.0), entry.time)
            elif name.endswith(_leases.ALIVE):
                seen[Path(name).stem] = max(seen.get(Path(name).stem, 0.0), entry.time)
        return worker_states(seen, held, self.clock(), _leases._STALE)

    def _holder(self, key: str) -> tuple[str, object, float] | None:
        """Return who holds a lease, its version, and since when; None if it is free."""
        entry = self.bucket.stat(self._name(key))
        if entry is None:
            return None
        try:
            return bytes(self.bucket.read(self._name(key))).decode(), entry.version, entry.time
        except FileNotFoundError:
            return None

    def _is_stale(self, owner: str, since: float) -> bool:
        if is_dead(owner):
            return True
        sign = self.bucket.stat(f"{self.prefix}/{owner}{_leases.ALIVE}")
        return self.clock() - max(since, 0.0 if sign is None else sign.time) > _leases._STALE
