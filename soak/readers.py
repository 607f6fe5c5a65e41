"""All readers of the package, each with whole files to damage and with what it must give of them."""

import gzip
import pickle
import shutil
import struct
import tarfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tangentlab import data, linearize, store
from tangentlab._cli._files import load_samples, load_weights
from tangentlab._cli._stored import _targets_in
from tangentlab.data import _cifar
from tangentlab.experiments import reproduce
from tangentlab.experiments._cache import Cache
from tangentlab.experiments._work import UnitOfWork
from tangentlab.report._build import _data
from tangentlab.report._collect import collect
from tangentlab.report._page import page
from tangentlab.training import SGD, TrainingSpec, train
from tangentlab.training._checkpoints import CheckpointStore

RECORDS = 4


@dataclass(frozen=True)
class Reader:
    """A function of the library that reads files.

    Attributes:
        name: Of the row in the table.
        make: Writes whole files into a folder.
        read: Reads them and gives numbers: tensors, arrays, texts, in lists and dictionaries.
        mutable: Patterns of the files to damage.
        checksums: Whether the format has checksums: then bytes changed at random give the original or a refusal.
    """

    name: str
    make: Callable[[Path], None]
    read: Callable[[Path], Any]
    mutable: tuple[str, ...] = ("**/*",)
    checksums: bool = False


@dataclass(frozen=True)
class Unit(UnitOfWork):
    """A unit of work whose result is in the cache."""

    def compute(self, context: Any) -> dict[str, Any]:
        """Raise, because the result is in the cache."""
        raise NotImplementedError


def network() -> nn.Module:
    """Return a small network with fixed weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def _numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# Data sets


def _idx(array: np.ndarray) -> bytes:
    return struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def _make_mnist(folder: Path, compressed: bool) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 6), ("t10k", 4)):
        images, labels = _idx(rng.integers(0, 256, (count, 28, 28))), _idx(np.arange(count) % 10)
        for what, content in (("images-idx3-ubyte", images), ("labels-idx1-ubyte", labels)):
            path = folder / (f"{name}-{what}" + (".gz" if compressed else ""))
            path.write_bytes(gzip.compress(content) if compressed else content)


def _batches() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    return {name: (rng.integers(0, 10, RECORDS), rng.integers(0, 256, (RECORDS, 3072), np.uint8)) for name in names}


def _make_cifar_binary(folder: Path) -> None:
    place = folder / "cifar-10-batches-bin"
    place.mkdir()
    for name, (labels, pixels) in _batches().items():
        rows = np.concatenate([labels[:, None].astype(np.uint8), pixels], 1)
        (place / f"{name}.bin").write_bytes(rows.tobytes())
    (place / "batches.meta.txt").write_text("\n".join(_cifar.CIFAR10_CLASSES))


def _make_cifar_python(folder: Path) -> None:
    place = folder / "cifar-10-batches-py"
    place.mkdir()
    for protocol, (name, (labels, pixels)) in enumerate(_batches().items()):
        content = {
            b"batch_label": b"a",
            b"labels": labels.tolist(),
            b"data": pixels,
            b"filenames": [b"a.png"] * RECORDS,
        }
        (place / name).write_bytes(pickle.dumps(content, protocol))


def _make_cifar_archive(folder: Path) -> None:
    _make_cifar_binary(folder)
    place = folder / "cifar-10-batches-bin"
    with tarfile.open(folder / "cifar-10-binary.tar.gz", "w:gz") as tar:
        for path in sorted(place.iterdir()):
            tar.add(path, f"{place.name}/{path.name}")
            path.unlink()
    place.rmdir()


def _make_images(folder: Path) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (folder / name).mkdir()
        for kind in ("png", "jpg", "bmp", "gif", "ppm", "tiff", "webp"):
            image = Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8))
            image.save(folder / name / f"{kind}.{kind}")


def _dataset(name: str, **options: Any) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        _cifar.RECORDS = RECORDS
        loaded = data.load(name, folder, download=False, progress=False, **options)
        assert int(loaded.train.labels.max()) < len(loaded.classes)
        return [part for split in (loaded.train, loaded.test) for part in (split.inputs(), split.labels)]

    return read


# Files of the command line


def _arrays() -> dict[str, np.ndarray]:
    return {"left": _numbers(1, 6, 4), "right": np.arange(12).reshape(6, 2)}


def _state() -> dict[str, Tensor]:
    return dict(network().state_dict())


def _read_weights(path: Path) -> Any:
    model = network()
    load_weights(model, path)
    return dict(model.state_dict())


def _save_safetensors(folder: Path) -> None:
    from safetensors.torch import save_file

    save_file(_state(), folder / "w.safetensors")


# Runs


SAMPLES = torch.from_numpy(_numbers(2, 12, 4)), torch.arange(12) % 2


def _train(folder: Path, epochs: int = 4) -> nn.Module:
    model = network()
    spec = TrainingSpec(epochs=epochs, batch_size=6, optimizer=SGD(lr=0.05, momentum=0.9), seed=0)
    train(model, SAMPLES, spec, folder=folder, checkpoint_every=1, progress=False)
    return model


def _make_run(folder: Path) -> None:
    """Make an interrupted run, with its last two checkpoints but one."""
    saved: list[tuple[str, bytes]] = []
    keep = CheckpointStore.save

    def note(self: CheckpointStore, state: dict[str, Any], step: int) -> Path:
        path = keep(self, state, step)
        saved.append((path.name, path.read_bytes()))
        return path

    CheckpointStore.save = note  # type: ignore[method-assign]
    try:
        _train(folder)
    finally:
        CheckpointStore.save = keep  # type: ignore[method-assign]
    for path in folder.iterdir():
        path.unlink()
    for name, content in saved[-4:-2]:
        (folder / name).write_bytes(content)


def _read_cache(folder: Path) -> Any:
    cache = Cache(folder)
    return [cache.read(Unit()), cache.seconds(Unit()), cache.note("data-digits")]


def _make_cache(folder: Path) -> None:
    cache = Cache(folder)
    cache.write(Unit(), {"a": torch.from_numpy(_numbers(4, 5)), "b": [1, 2.5, "text"]}, 1.5)
    cache.write_note("data-digits", {"digest": "0" * 16, "files": []})


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, list[Any]]] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, attrs))


def _read_results(folder: Path) -> Any:
    entries = collect(folder)
    text = page(entries, "soak", style="", data=_data(entries), code="")
    text.encode()
    reader = _Tags()
    reader.feed(text)
    tags = [tag for tag, _ in reader.found]
    assert tags.count("script") == 2, "a script tag came into the page"
    assert "img" not in tags, "an image came into the page"
    assert not [a for _, attributes in reader.found for a, _ in attributes if a.startswith("on")], "a handler came in"
    return []


def _make_results(folder: Path) -> None:
    done = reproduce("mohamadi2022/theorem1", "tiny", out=folder / "out", progress=False)
    place = folder / "mohamadi2022" / "theorem1"
    place.mkdir(parents=True)
    for name in ("record.json", "table.csv", "figure.json"):
        (place / name).write_bytes((done.folder / name).read_bytes())
    shutil.rmtree(folder / "out")


def _read_store(path: Path) -> Any:
    kernel = store.open(path)
    whole = kernel.to_tensor()
    assert kernel.verify(progress=False).good
    assert torch.equal(kernel[:2, -3:], whole[:2, -3:])
    return [whole, kernel.diagonal(), kernel @ torch.ones(len(kernel), dtype=kernel.dtype)]


def _make_store(folder: Path) -> None:
    inputs = torch.from_numpy(_numbers(5, 5, 4))
    store.compute(network(), inputs, folder / "k.zarr", tile=2, progress=False)


def _make_packed(folder: Path) -> None:
    _make_store(folder)
    store.pack(folder / "k.zarr", folder / "k.zarr.zip")
    shutil.rmtree(folder / "k.zarr")


def _write(name: str, save: Callable[[Path], Any]) -> Callable[[Path], None]:
    return lambda folder: save(folder / name)


READERS = (
    Reader("idx files", lambda folder: _make_mnist(folder, False), _dataset("mnist")),
    Reader("idx files, gzip", lambda folder: _make_mnist(folder, True), _dataset("mnist"), checksums=True),
    Reader("CIFAR-10, binary", _make_cifar_binary, _dataset("cifar10")),
    Reader("CIFAR-10, pickles", _make_cifar_python, _dataset("cifar10")),
    Reader("CIFAR-10, tar archive", _make_cifar_archive, _dataset("cifar10"), checksums=True),
    Reader("image folders", _make_images, _dataset("folder", resize=10, crop=8)),
    Reader(
        ".npy samples", _write("x.npy", lambda p: np.save(p, _arrays()["left"])), lambda f: load_samples(f / "x.npy")
    ),
    Reader(
        ".npz samples",
        _write("x.npz", lambda p: np.savez_compressed(p, **_arrays())),  # type: ignore[arg-type]
        lambda f: load_samples(f / "x.npz"),
        checksums=True,
    ),
    Reader(
        ".pt samples",
        _write("x.pt", lambda p: torch.save({n: torch.from_numpy(a) for n, a in _arrays().items()}, p)),
        lambda f: load_samples(f / "x.pt"),
        checksums=True,
    ),
    Reader(
        "labels", _write("y.npy", lambda p: np.save(p, np.arange(20) % 3)), lambda folder: _targets_in(folder / "y.npy")
    ),
    Reader(
        ".pt weights",
        _write("w.pt", lambda p: torch.save(_state(), p)),
        lambda f: _read_weights(f / "w.pt"),
        checksums=True,
    ),
    Reader(
        ".pt weights, old format",
        _write("w.pth", lambda p: torch.save(_state(), p, _use_new_zipfile_serialization=False)),
        lambda f: _read_weights(f / "w.pth"),
    ),
    Reader(".safetensors weights", _save_safetensors, lambda f: _read_weights(f / "w.safetensors")),
    Reader(
        "linearize(at=file)",
        _write("w.pt", lambda p: torch.save(_state(), p)),
        lambda f: dict(linearize(network(), f / "w.pt").state_dict()),
        checksums=True,
    ),
    Reader("training run", _make_run, lambda f: dict(_train(f).state_dict()), ("*.pt",), checksums=True),
    Reader("cache of an experiment", _make_cache, _read_cache, ("*.pt", "*.json")),
    Reader("run folder and page", _make_results, _read_results),
    Reader("store, zarr.json", _make_store, lambda f: _read_store(f / "k.zarr"), ("k.zarr/zarr.json",), checksums=True),
    Reader("store, tiles", _make_store, lambda f: _read_store(f / "k.zarr"), ("k.zarr/c/*/*",), checksums=True),
    Reader("store, packed", _make_packed, lambda f: _read_store(f / "k.zarr.zip"), checksums=True),
)


def numbers(value: Any) -> list[np.ndarray]:
    """Return all numbers in the result of a reader, in order."""
    if isinstance(value, Tensor):
        return [value.detach().to_dense().numpy() if value.layout != torch.strided else value.detach().numpy()]
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, dict):
        return [part for name in sorted(value, key=str) for part in numbers(value[name])]
    if isinstance(value, list | tuple):
        return [part for inner in value for part in numbers(inner)]
    return [np.array([value])] if isinstance(value, int | float) else []


def quiet(function: Callable[[], Any]) -> Any:
    """Return the result of a call without warnings about damage."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function()
