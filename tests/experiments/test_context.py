"""What one run loads, keeps and leaves alone: results, data sets, timings and executors."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tangentlab import data
from tangentlab.experiments import Context, Settings, get, open_context, reproduce
from tangentlab.experiments import _context as context_module
from tangentlab.experiments._cache import Cache
from tangentlab.experiments._parts import Images
from tangentlab.experiments.mohamadi2022 import _timing as timing

SHORT: dict[str, Any] = {"models": ("mlp",), "n_train": 64, "n_test": 32, "epochs": 1, "batch_size": 32}
RANKS: dict[str, Any] = {"samples": 12, "widths": (0.5, 1.0), "sets": ("digits",)}
# Experiments of every kind that reads several results of one unit into its rows.
READERS = {
    "ortiz2021/fig2": {**SHORT, "indices": (1, 2, 5), "eigenpairs": 8},
    "ortiz2021/fig4": {**SHORT, "models": ("lenet",), "indices": (1, 2, 4), "directions": 4},
    "ortiz2021/fig6": {**SHORT, "samples": 20, "k": 3, "epochs": 2, "checkpoints": (0, 1, 2)},
    "ortiz2021/fig14": {**SHORT, "indices": (1, 5), "functions": 6, "eigenpairs": 8},
    "samarin2022/figA2": {"n_train": 64, "n_test": 32, "epochs": 1, "widths": (0.5, 1.0), "watch_every": 2},
}


def keeper(folder: Path, **options: Any) -> Context:
    return Context(Settings(str(folder)), progress=False, **options)


@pytest.mark.parametrize("name", READERS)
def test_a_result_is_read_once(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At full size one file of eigenvectors has 2.4 GB, and a figure has 78 rows."""
    first = reproduce(name, out=tmp_path, overrides=READERS[name], progress=False)
    reads: Counter[str] = Counter()
    read = Cache.read

    def counted(cache: Cache, work: Any) -> Any:
        reads[work.key] += 1
        return read(cache, work)

    monkeypatch.setattr(Cache, "read", counted)
    second = reproduce(name, out=tmp_path, overrides=READERS[name], again=True, progress=False)
    assert second.record["work"]["computed"] == 0
    assert second.table.equals(first.table)
    assert reads
    assert max(reads.values()) == 1
    assert not [key for key in reads if key.startswith("spectrum-")], "eigenvectors were loaded and not used"


def test_each_run_lists_its_own_data(tmp_path: Path) -> None:
    context = open_context(tmp_path, progress=False)
    sizes = {"depths": (18,), "sets": ("digits",), "width": 0.03, "repeats": 1}
    with_data = reproduce("samarin2022/fig6", out=tmp_path, overrides=RANKS, context=context)
    without = reproduce("mohamadi2022/fig1", out=tmp_path, overrides=sizes, context=context)
    assert list(with_data.record["data"]) == ["digits"]
    assert without.record["data"] == {}  # random inputs
    # Whoever loaded the data, and whenever: the record of a run whose units are all finished has them too.
    again = reproduce("samarin2022/fig6", out=tmp_path, overrides=RANKS, again=True, progress=False)
    assert again.record["work"]["computed"] == 0
    assert again.record["data"] == with_data.record["data"]


def test_a_run_does_not_change_the_context_it_is_given(tmp_path: Path) -> None:
    context = open_context(tmp_path, device="cuda", progress=False)
    result = reproduce("samarin2022/fig6", out=tmp_path, overrides=RANKS, context=context)
    assert result.record["work"] == {"computed": 2, "reused": 0}
    assert context.settings.device == "cuda"  # the run's own is its spec's
    assert (context.computed, context.used) == ([], {})


def test_data_of_units_that_workers_computed(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        result = reproduce("samarin2022/fig6", out=tmp_path, overrides=RANKS, executor=executor, progress=False)
    assert list(result.record["data"]) == ["digits"]


def test_timings_are_of_a_device(tmp_path: Path) -> None:
    """A time on a GPU is not taken for one on the CPU."""
    keys: dict[str, set[str]] = {}

    class Asked(Context):
        def get(self, work: Any) -> Any:
            keys.setdefault(self.settings.device, set()).add(work.key)
            return {"eNTK": 2.0, "pNTK": 1.0, "parameters": 3}

    spec = get("mohamadi2022/fig1").presets["tiny"]
    for device in ("cpu", "cuda"):
        timing.run(replace(spec, device=device), Asked(Settings(str(tmp_path), device=device)))
    assert len(keys["cpu"]) == len(keys["cuda"]) == 4
    assert not keys["cpu"] & keys["cuda"]


SHAPES = [
    Images("digits"),
    Images("digits", 50, 20),
    Images("digits", pad_to=16),
    Images("digits", shift=2),
    Images("digits", shift=2, canvas=10),
    Images("digits", pad_to=9, shift=1),
]


@pytest.mark.parametrize("images", SHAPES)
def test_shapes_are_those_of_the_images(images: Images, tmp_path: Path) -> None:
    assert images.shape(keeper(tmp_path)) == images.load(keeper(tmp_path)).input_shape


@pytest.mark.parametrize(
    ("images", "shape"),
    [
        (Images("digits"), (1, 8, 8)),
        (Images("mnist", pad_to=32), (1, 32, 32)),
        (Images("mnist", shift=7, canvas=35), (1, 35, 35)),
        (Images("cifar10"), (3, 32, 32)),
        (Images("cifar10", shift=4), (3, 40, 40)),
        (Images("snakes"), (3, 224, 224)),
    ],
)
def test_a_shape_needs_no_files(
    images: Images, shape: tuple[int, int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("the data set was loaded")

    context_module._load.cache_clear()
    monkeypatch.setattr(data, "load", refuse)
    assert images.shape(keeper(tmp_path)) == shape


@pytest.mark.parametrize("workers", [1, 2])
def test_an_executor_of_the_caller_is_left_open(workers: int, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        context = keeper(tmp_path, workers=workers, executor=executor)
        context.close()
        reproduce("samarin2022/fig6", out=tmp_path, overrides=RANKS, workers=workers, executor=executor, progress=False)
        assert executor.submit(sum, (1, 2)).result() == 3
