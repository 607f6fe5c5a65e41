"""Where experiments run: data, cache, device and workers."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from tangentlab import data
from tangentlab._errors import TangentError
from tangentlab._progress import progress_bar
from tangentlab.data import ImageData
from tangentlab.experiments._cache import Cache
from tangentlab.experiments._work import Work, needs, stages


@dataclass(frozen=True)
class Settings:
    """What a worker process needs to know; plain values.

    Attributes:
        cache: Folder of finished units of work.
        data_dir: Folder of the data sets, as for :func:`tangentlab.data.load`.
        device: Of networks.
        threads: Of PyTorch in this process; 0 leaves them as they are.
        progress: Whether units show their own progress bars; None for "on a terminal".
    """

    cache: str
    data_dir: str | None = None
    device: str = "cpu"
    threads: int = 0
    progress: bool | None = False


class Context:
    """Gives experiments the results of their units of work, computing what is not in the cache.

    Args:
        settings: The settings.
        workers: Processes that compute units; 1 for this one alone.
        executor: Any ``concurrent.futures`` executor whose workers see the same folders, instead of ``workers``.
        progress: Shows a bar over the units; None for "on a terminal".
    """

    def __init__(
        self,
        settings: Settings,
        *,
        workers: int = 1,
        executor: Executor | None = None,
        progress: bool | None = None,
    ) -> None:
        if workers < 1:
            raise TangentError(f"workers={workers} leaves nobody to work.", remedy="Use 1 or more.")
        self.settings, self.workers, self.executor, self.progress = settings, workers, executor, progress
        self.cache = Cache(settings.cache)
        self.computed: list[str] = []
        self.reused: list[str] = []
        self.used: dict[str, Work] = {}
        self.provenance: dict[str, dict[str, Any]] = {}

    @property
    def device(self) -> torch.device:
        """Of networks."""
        return torch.device(self.settings.device)

    # Units of work

    def get(self, work: Work) -> dict[str, Any]:
        """The result of one unit, from the cache or computed here."""
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
        self.reused.append(work.key)
        return found

    def map(self, works: Sequence[Work], title: str = "working") -> list[dict[str, Any]]:
        """The results of many units. What they need is computed first, in this process or by the workers."""
        self._note_use(works)
        todo = [[work for work in stage if not self.cache.has(work)] for stage in stages(list(works))]
        count = sum(map(len, todo))
        if count:
            with progress_bar(title, count, self.progress) as tick:
                for stage in todo:
                    if stage:
                        tick(0, stage[0].title)
                    for work in self._run(stage):
                        tick(1, work.title)
        return [self.get(work) for work in works]

    def _note_use(self, works: Sequence[Work]) -> None:
        self.used |= {work.key: work for stage in stages(list(works)) for work in stage}

    def work_seconds(self) -> float:
        """The time of all units in :attr:`used`, whoever computed them and when."""
        return sum(map(self.cache.seconds, self.used.values()))

    def _run(self, stage: list[Work]) -> Iterator[Work]:
        """Computes a stage; yields each unit when it is done."""
        if self.executor is None and (self.workers == 1 or len(stage) < 2):
            for work in stage:
                self.get(work)
                yield work
            return
        executor = self.executor if self.executor is not None else self._pool()
        futures = {executor.submit(compute_unit, self.settings, work): work for work in stage}
        try:
            for future in as_completed(futures):
                self.computed += future.result()
                yield futures[future]
        finally:
            for future in futures:
                future.cancel()

    def _pool(self) -> Executor:
        """Processes that share the cores of this machine."""
        threads = self.settings.threads or max(1, (os.cpu_count() or 1) // self.workers)
        self.settings = replace(self.settings, threads=threads)
        self.executor = ProcessPoolExecutor(self.workers, mp_context=get_context("spawn"))
        return self.executor

    def close(self) -> None:
        """Ends the workers."""
        if self.workers > 1 and self.executor is not None:
            self.executor.shutdown(cancel_futures=True)
            self.executor = None

    # Data

    def load(self, name: str) -> ImageData:
        """A data set by name, read once a process, and checked to be the one the cache was made with.

        Raises:
            TangentError: If results in the cache are from other files of that name.
        """
        loaded = _load(name, self.settings.data_dir)
        files = [{"path": file.path, "md5": file.md5} for file in loaded.provenance.files]
        digest = hashlib.blake2b(" ".join(file["md5"] for file in files).encode(), digest_size=8).hexdigest()
        if name not in self.provenance:
            self.provenance[name] = {
                "source": loaded.provenance.source,
                "files": [{"name": Path(file["path"]).name, "md5": file["md5"]} for file in files],
                "original": loaded.provenance.original,
            }
            known = self.cache.note(f"data-{name}")
            if known is None:
                self.cache.write_note(f"data-{name}", {"digest": digest, **self.provenance[name]})
            elif known.get("digest") != digest:
                raise TangentError(
                    f"The results in {self.cache.folder} were made with other files of {name!r}.",
                    why="Mixing them would compare networks on different data.",
                    remedy="Use another --out, or the files that were used before.",
                )
        return loaded


@lru_cache(maxsize=4)
def _load(name: str, data_dir: str | None) -> ImageData:
    return data.load(name, data_dir=data_dir, progress=False)


def compute_unit(settings: Settings, work: Work) -> list[str]:
    """What a worker does: computes one unit into the cache.

    Returns:
        The keys of all units that had to be computed.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    context = Context(settings, progress=False)
    context.get(work)
    return context.computed
