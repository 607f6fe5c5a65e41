"""Files of tensors and arrays from strangers: damage is seen, sizes are bounded, nothing in them runs."""

import io
import os
import pickle
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from soak.readers import Unit
from tangentlab import linearize
from tangentlab._cli._files import load_samples, load_weights
from tangentlab._errors import TangentError
from tangentlab.experiments._cache import Cache
from tangentlab.training._checkpoints import CheckpointStore


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(40, 8), nn.Linear(8, 2))


def read_samples(path: Path) -> Any:
    return load_samples(path)


def read_weights(path: Path) -> Any:
    network = model()
    load_weights(network, path)
    return network.state_dict()


def read_base(path: Path) -> Any:
    return linearize(model(), path)


def read_cache(path: Path) -> Any:
    cache = Cache(path.parent / "cache")
    os.replace(path, cache.path(Unit()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = cache.read(Unit())
    if found is None:
        raise TangentError(str(caught[0].message))
    return found


def read_checkpoint(path: Path) -> Any:
    store = CheckpointStore(path.parent / "run")
    os.replace(path, store.folder / "step-000000000001.pt")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return store.load()
    finally:
        store.close()


READERS = [read_samples, read_weights, read_base, read_cache, read_checkpoint]
STATE = {
    "format": 1,
    "fingerprint": {},
    "step": 1,
    "other buffers": {},
    "optimizer": {},
    "generators": [torch.get_rng_state()],
    "record": {},
    "seconds": 1.0,
}


def content(reader: Callable[[Path], Any]) -> Any:
    """What each reader takes."""
    state = dict(model().state_dict())
    return {"model": state, **STATE} if reader is read_checkpoint else state


@pytest.mark.parametrize("reader", READERS)
def test_whole_files_are_read(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    torch.save(content(reader), tmp_path / "w.pt")
    assert reader(tmp_path / "w.pt") is not None


@pytest.mark.parametrize("reader", READERS)
def test_a_flipped_bit_is_seen(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    """torch.load does not verify the checksums that torch.save writes."""
    path = tmp_path / "w.pt"
    torch.save(content(reader), path)
    raw = bytearray(path.read_bytes())
    raw[raw.index(model()[0].weight.detach().numpy().tobytes()) + 41] ^= 0x20
    path.write_bytes(raw)
    with pytest.raises(TangentError, match="checksum"):
        reader(path)


def compressed(value: Any, path: Path, **replaced: bytes) -> None:
    """The file of torch.save with compressed members, which torch.load would unpack; some replaced."""
    buffer = io.BytesIO()
    torch.save(value, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name in old.namelist():
            new.writestr(name, replaced.get(name.rpartition("/")[2], old.read(name)))


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_unpacks_to_a_thousand_times_its_size(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    value = content(reader)
    value["zeros"] = torch.zeros(75 * 2**20)
    compressed(value, tmp_path / "w.pt")
    assert (tmp_path / "w.pt").stat().st_size < 2**20
    with pytest.raises(TangentError, match="times"):
        reader(tmp_path / "w.pt")


class Hostile:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("reader", READERS)
def test_code_does_not_run(reader: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({**content(reader), "evil": Hostile()}, tmp_path / "w.pt")
    with pytest.raises(TangentError):
        reader(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", [3, [1, 2], None, {"a": "text"}, torch.ones(2)])
def test_other_contents(reader: Callable[[Path], Any], value: Any, tmp_path: Path) -> None:
    if (reader is read_samples and isinstance(value, torch.Tensor)) or (
        reader is read_cache and isinstance(value, dict)
    ):
        pytest.skip("it is what this reader takes")
    torch.save(value, tmp_path / "w.pt")
    with pytest.raises(TangentError):
        reader(tmp_path / "w.pt")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("raw", [b"", b"PK\3\4", b"\x80\x02}q\0.", b"x" * 1000, b"\x80\x02" + b"]" * 50_000])
def test_what_is_no_such_file(reader: Callable[[Path], Any], raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(raw)
    with pytest.raises(TangentError) as caught:
        reader(tmp_path / "w.pt")
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("missing", sorted({*STATE, "model"}))
def test_a_checkpoint_without_a_part(missing: str, tmp_path: Path) -> None:
    whole = content(read_checkpoint)
    torch.save({name: value for name, value in whole.items() if name != missing}, tmp_path / "w.pt")
    with pytest.raises(TangentError, match="No checkpoint in"):
        read_checkpoint(tmp_path / "w.pt")


@pytest.mark.parametrize("name", sorted({*STATE, "model"}))
def test_a_checkpoint_with_a_part_of_another_kind(name: str, tmp_path: Path) -> None:
    torch.save({**content(read_checkpoint), name: "text"}, tmp_path / "w.pt")
    with pytest.raises(TangentError, match="No checkpoint in"):
        read_checkpoint(tmp_path / "w.pt")


# Arrays


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "raw",
    [
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}\n", bytes(16)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}\n", bytes(16)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}\n", bytes(17)),
        npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4,)}\n", bytes(15)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", pickle.dumps([Hostile()])),
        npy("{'descr': '<U4', 'fortran_order': False, 'shape': (1,)}\n", bytes(16)),
        npy("{'descr': '>f4', 'fortran_order': False, 'shape': (4,)}\n", bytes(16)),
        npy("__import__('os').system('touch ran')\n"),
        npy("[" * 5000 + "\n"),
        npy(""),
        b"",
        b"\x93NUMPY\x09\x00",
        b"PK\3\4" + bytes(30),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_arrays_that_are_none(raw: bytes, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / ("x.npz" if packed else "x.npy")
    if packed:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.npy", raw)
    else:
        path.write_bytes(raw)
    with pytest.raises(TangentError, match="cannot be read"):
        load_samples(path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["float32", "float64", "int64", "uint8", "bool", "float16", "int32"])
def test_arrays_are_read_as_they_are(order: Any, kind: str, tmp_path: Path) -> None:
    array = np.asarray(np.random.default_rng(0).integers(0, 2, (5, 3, 2)), kind, order=order)
    np.save(tmp_path / "x.npy", array)
    np.testing.assert_array_equal(load_samples(tmp_path / "x.npy").numpy(), array)
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", a=array, b=array[:0])
        read = load_samples(tmp_path / "x.npz")
        np.testing.assert_array_equal(read["a"].numpy(), array)
        assert read["b"].shape == (0, 3, 2)


def bomb(path: Path, declared: int | None = None) -> None:
    """300 MiB of zeros in 300 kB; the directory may announce less."""
    header = npy("{'descr': '|u1', 'fortran_order': False, 'shape': (314572800,)}\n")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("x.npy", header + bytes(300 * 2**20))
    if declared is not None:
        raw = bytearray(path.read_bytes())
        at = raw.rindex(b"PK\1\2")
        raw[at + 24 : at + 28] = struct.pack("<I", declared)
        path.write_bytes(raw)


@pytest.mark.parametrize("declared", [None, 100, 314572800])
def test_arrays_that_unpack_to_a_thousand_times_their_size(declared: int | None, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    bomb(path, declared)
    assert path.stat().st_size < 400_000
    program = (
        "import resource, sys\nfrom pathlib import Path\nfrom tangentlab import TangentError\n"
        "from tangentlab._cli._files import load_samples\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "try:\n    load_samples(Path(sys.argv[1]))\nexcept TangentError as error:\n    print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert "cannot be read" in done.stdout
    assert int(done.stdout.splitlines()[-1]) * 1024 < 100 * 2**20


def test_two_arrays_of_one_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for value in (0, 1):
            buffer = io.BytesIO()
            np.save(buffer, np.full(3, value))
            archive.writestr("x.npy", buffer.getvalue())
    with pytest.raises(TangentError, match="twice"):
        load_samples(path)


@pytest.mark.parametrize(
    "raw", [b"", struct.pack("<Q", 2**62) + b"{}", struct.pack("<Q", 2) + b"{}" + b"x", b"\0" * 64]
)
def test_safetensors_that_are_none(raw: bytes, tmp_path: Path) -> None:
    pytest.importorskip("safetensors", reason="safetensors is not installed: pip install '.[dev]'")
    (tmp_path / "w.safetensors").write_bytes(raw)
    with pytest.raises(TangentError):
        load_weights(model(), tmp_path / "w.safetensors")


@pytest.mark.parametrize("suffix", [".pt", ".npy", ".npz", ".safetensors"])
def test_numbers_that_are_none_are_refused(suffix: str, tmp_path: Path) -> None:
    """NaN among the samples or the weights would make the whole kernel NaN."""
    x = torch.randn(5, 4)
    x[2, 1] = torch.nan
    path = tmp_path / f"x{suffix}"
    if suffix == ".pt":
        torch.save(x, path)
    elif suffix == ".safetensors":
        safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
        state = model().state_dict()
        state["0.weight"][0, 0] = torch.nan
        safetensors.save_file(state, path)
        with pytest.raises(TangentError, match=r"NaN.*0\.weight|0\.weight.*NaN"):
            load_weights(model(), path)
        return
    else:
        (np.save if suffix == ".npy" else np.savez)(path, x.numpy())
    with pytest.raises(TangentError, match="NaN"):
        load_samples(path)


def test_weights_to_linearize_at_that_are_none(tmp_path: Path) -> None:
    state = model().state_dict()
    state["1.bias"][0] = torch.nan
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(TangentError, match=r"NaN in 1\.bias"):
        linearize(model(), tmp_path / "w.pt")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.npy")
    with pytest.raises(TangentError):
        load_samples(tmp_path / "x.npy")


# Notes beside the units of work


@pytest.mark.parametrize(
    "raw", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, b'{"seconds": "long"}', b'{"seconds": NaN}']
)
def test_damaged_notes_do_not_stop_a_run(raw: bytes, tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.write(Unit(), {"a": 1}, 2.5)
    assert cache.seconds(Unit()) == 2.5
    (tmp_path / f"{Unit().key}.json").write_bytes(raw)
    assert cache.seconds(Unit()) == 0.0
    assert cache.read(Unit()) == {"a": 1}


@pytest.mark.parametrize("raw", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_note_about_data_is_refused(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "data-digits.json").write_bytes(raw)
    with pytest.raises(TangentError, match=r"data-digits\.json"):
        Cache(tmp_path).note("data-digits")


def test_labels_far_out_of_range(tmp_path: Path) -> None:
    from tangentlab._cli._stored import _targets_in

    for value in (2**40, 2**62):
        np.save(tmp_path / "y.npy", np.array([0, 1, value]))
        with pytest.raises(TangentError, match="class number"):
            _targets_in(tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", np.array([0, 1, 2**64 - 1], np.uint64))
    with pytest.raises(TangentError):
        _targets_in(tmp_path / "y.npy")
    np.save(tmp_path / "y.npy", np.array([], np.int64))
    with pytest.raises(TangentError):
        _targets_in(tmp_path / "y.npy")


def test_a_member_that_the_index_hides(tmp_path: Path) -> None:
    """A damaged comment length in the index of a zip archive swallows the members behind it."""
    path = tmp_path / "x.npz"
    np.savez_compressed(path, left=np.ones((3, 2)), right=np.zeros((3, 2)))
    content = bytearray(path.read_bytes())
    first, second = content.find(b"PK\x01\x02"), content.rfind(b"PK\x01\x02")
    length = content.find(b"PK\x05\x06") - second
    content[first + 32 : first + 34] = length.to_bytes(2, "little")
    path.write_bytes(bytes(content))
    assert np.load(path).files == ["left"]
    with pytest.raises(TangentError, match="missing"):
        load_samples(path)
