"""The environment of a run: data, cache, device and workers."""

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import torch

from tangentlab import data
from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab.data import ImageData
from tangentlab.experiments._cache import Cache
from tangentlab.experiments._parts import Images
from tangentlab.experiments._work import Outcome, UnitOfWork, inside, needs, stages
from tangentlab.experiments._workers import Workers

Place = TypeVar("Place")


@dataclass(frozen=True)
class Settings:
    """Plain values that a worker process needs.

    Attributes:
        cache: Folder of finished units of work.
        data_dir: Folder of the data sets, as for :func:`tangentlab.data.load`.
        device: Device of the networks.
        threads: Number of PyTorch threads in this process; 0 for no change.
        progress: Whether units show their own progress bars; None for "on a terminal".
    """

    cache: str
    data_dir: str | None = None
    device: str = "cpu"
    threads: int = 0
    progress: bool | None = False


class Context:
    """The results of the units of work of one run of an experiment; it computes what is not in the cache.

    A context belongs to one run: it knows which units that run used and computed. :meth:`for_run` makes one for another
    run, with the same cache, data and workers.

    Cost: that of the units of work that are not in the cache, and reading one file for each of the others.

    Args:
        settings: The settings.
        workers: Number of processes that compute units; 1 for this one only.
        executor: Any ``concurrent.futures`` executor whose workers see the same folders, instead of ``workers``. It is
            the caller's to shut down.
        progress: Whether to show a bar over the units; None for "on a terminal".

    Attributes:
        computed: Keys of the units that this run computed.
        reused: Keys of the units whose results it found finished.
        used: Every unit it asked for and what those need, by key.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int | Workers = 1,
        executor: Executor | None = None,
        progress: bool | None = None,
    ) -> None:
        self.workers = workers if isinstance(workers, Workers) else Workers(workers, executor)
        self.settings, self.progress = settings, progress
        self.cache = Cache(settings.cache)
        self.computed: list[str] = []
        self.reused: list[str] = []
        self.used: dict[str, UnitOfWork[Any]] = {}
        self._checked: set[str] = set()

    def for_run(self, device: str) -> "Context":
        """Return a context for another run on a device, with the same cache, data and workers."""
        return Context(replace(self.settings, device=device), workers=self.workers, progress=self.progress)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return torch.device(self.settings.device)

    # Units of work

    def get(self, work: UnitOfWork[Outcome]) -> Outcome:
        """Return the result of one unit, from the cache or computed here."""
        self._note_use([work])
        found = self.cache.read(work)
        if found is None:
            with self.cache.lock(work):
                found = self.cache.read(work)  # another process may just have written it
                if found is None:
                    for inner in needs(work):
                        if not self.cache.has(inner):
                            self.get(inner)
                    started = time.monotonic()
                    found = work.compute(self)
                    # A training run that was interrupted knows the time of all its parts.
                    seconds = max(time.monotonic() - started, float(found.get("seconds", 0.0)))
                    self.cache.write(work, found, seconds)
                    self.computed.append(work.key)
                    return found
        if work.key not in self.computed and work.key not in self.reused:
            self.reused.append(work.key)
        return found

    def compute(self, works: Sequence[UnitOfWork[Any]], title: str = "working") -> None:
        """Compute many units and what they need, in this process or in the workers, without reading their results."""
        self._note_use(works)
        todo = [[work for work in stage if not self.cache.has(work)] for stage in stages(works)]
        count = sum(map(len, todo))
        if count:
            with progress_bar(title, count, self.progress) as tick:
                for stage in todo:
                    if stage:
                        tick(0, stage[0].title)
                    for work in self._run(stage):
                        tick(1, work.title)

    def map(self, works: Sequence[UnitOfWork[Outcome]], title: str = "working") -> list[Outcome]:
        """Return the results of many units, in their order. The result of a unit that occurs twice is read once."""
        self.compute(works, title)
        found = {key: self.get(work) for key, work in {work.key: work for work in works}.items()}
        return [found[work.key] for work in works]

    def results(self, works: Mapping[Place, UnitOfWork[Outcome]], title: str = "working") -> dict[Place, Outcome]:
        """Return the results of many units under the same keys."""
        return dict(zip(works, self.map(list(works.values()), title), strict=True))

    def _note_use(self, works: Sequence[UnitOfWork[Any]]) -> None:
        self.used |= {work.key: work for stage in stages(works) for work in stage}

    def work_seconds(self) -> float:
        """Return the time of all units in :attr:`used`, no matter which process computed them and when."""
        return sum(map(self.cache.seconds, self.used.values()))

    def _run(self, stage: list[UnitOfWork[Any]]) -> Iterator[UnitOfWork[Any]]:
        """Compute a stage; yield each unit when it is done."""
        executor = self.workers.executor(len(stage))
        if executor is None:
            for work in stage:
                self.get(work)
                yield work
            return
        settings = replace(self.settings, threads=self.settings.threads or self.workers.threads)
        futures = {executor.submit(compute_unit, settings, work): work for work in stage}
        try:
            for future in as_completed(futures):
                self.computed += future.result()
                yield futures[future]
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        """End the processes that were started for this context. An executor that the caller passed is left as it is."""
        self.workers.close()

    # Data

    def load(self, name: str) -> ImageData:
        """Return a data set by name. It is read once per process, and must be the one the cache was made with.

        Raises:
            TangentError: If results in the cache are from other files of that name.
        """
        loaded = _load(name, self.settings.data_dir)
        if name not in self._checked:
            digest = _digest(loaded)
            known = self.cache.note(f"data-{name}")
            if known is None:
                self.cache.write_note(f"data-{name}", {"digest": digest, **_origin(loaded)})
            elif known.get("digest") != digest:
                raise TangentError(
                    f"The results in {self.cache.folder} were made with other files of {name!r}.",
                    why="Mixing them would compare networks on different data.",
                    remedy="Use another --out, or the files that were used before.",
                )
            self._checked.add(name)
        return loaded

    def data(self) -> dict[str, dict[str, Any]]:
        """Return source and files of every data set that units in :attr:`used` depend on, no matter which process
        loaded it."""
        names = dict.fromkeys(part.name for part in inside(list(self.used.values())) if isinstance(part, Images))
        return {name: self._noted(name) for name in names}

    def _noted(self, name: str) -> dict[str, Any]:
        known = self.cache.note(f"data-{name}") or {}
        return {part: known[part] for part in _ORIGIN} if known.keys() >= set(_ORIGIN) else _origin(self.load(name))


_ORIGIN = ("source", "files", "original")


def _origin(loaded: ImageData) -> dict[str, Any]:
    """Return where a data set comes from, as stored in the record."""
    files = [{"name": Path(file.path).name, "md5": file.md5} for file in loaded.provenance.files]
    return {"source": loaded.provenance.source, "files": files, "original": loaded.provenance.original}


def _digest(loaded: ImageData) -> str:
    """Return a hash of the checksums of a data set's files."""
    sums = " ".join(file.md5 for file in loaded.provenance.files)
    return hashlib.blake2b(sums.encode(), digest_size=8).hexdigest()


@lru_cache(maxsize=4)
def _load(name: str, data_dir: str | None) -> ImageData:
    return data.load(name, data_dir=data_dir, progress=False)


def compute_unit(settings: Settings, work: UnitOfWork[Any]) -> list[str]:
    """Compute one unit into the cache. This is what a worker process runs.

    Returns:
        The keys of all units that had to be computed.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    context = Context(settings, progress=False)
    context.get(work)
    return context.computed
