"""Downloads, against a web server on this machine."""

import gzip
import hashlib
import threading
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tangentlab import TangentError, data
from tangentlab.data import _cifar, _download, _load, _mnist
from tangentlab.data._download import DownloadFailure, fetch
from tangentlab.data._published import (
    CIFAR10_BINARY,
    CIFAR10_PYTHON,
    FASHION_MNIST,
    MNIST,
    CifarForm,
    IdxFile,
    IdxPublication,
    RemoteFile,
)
from tests.data.writers import small_cifar, small_mnist, write_archive, write_binary, write_mnist, write_python

CLOSED = "http://127.0.0.1:9/"  # the discard port: nothing listens


class Handler(SimpleHTTPRequestHandler):
    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(self.path)
        if self.path.startswith("/short/"):  # announces more than it sends
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            self.wfile.write(b"half of it")
            return
        super().do_GET()

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(tmp_path):
    """Serve ``tmp_path/www``; return its address."""
    folder = tmp_path / "www"
    folder.mkdir()
    Handler.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as service:
        thread = threading.Thread(target=partial(service.serve_forever, poll_interval=0.02), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{service.server_port}/"
        service.shutdown()
        thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def publication(name: str, files: dict[str, bytes], mirrors: tuple[str, ...]) -> IdxPublication:
    """MNIST or Fashion-MNIST as it would be published with these contents on these mirrors."""
    real = MNIST if name == "mnist" else FASHION_MNIST
    idx_files = []
    for file, content in files.items():
        packed = gzip.compress(content, mtime=0)
        urls = tuple(f"{mirror}{file}.gz" for mirror in mirrors)
        idx_files.append(IdxFile(file, md5(content), RemoteFile(f"{file}.gz", md5(packed), len(packed), urls)))
    return IdxPublication(real.name, real.title, real.folders, tuple(idx_files), real.classes)


def serve_mnist(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content, mtime=0))


def use(monkeypatch, published: IdxPublication) -> None:
    monkeypatch.setattr(_load, "MNIST", published)


def test_downloads_from_the_mirror_that_works_and_only_once(tmp_path, monkeypatch, server, empty_cache):
    files = small_mnist()
    serve_mnist(tmp_path / "www", files)
    use(monkeypatch, publication("mnist", files, (CLOSED, server + "missing/", server)))
    loaded = data.load("mnist")
    assert loaded.provenance.original is True
    assert sorted(path.name for path in (empty_cache / "MNIST/raw").iterdir()) == sorted(f"{n}.gz" for n in files)
    asked = len(Handler.asked)
    assert asked == 8  # four answers "not found", four files
    assert len(data.load("mnist").train) == len(loaded.train)
    assert len(Handler.asked) == asked


def test_the_users_folder_goes_before_cache_and_network(tmp_path, monkeypatch, server):
    files = small_mnist()
    serve_mnist(tmp_path / "www", files)
    use(monkeypatch, publication("mnist", files, (server,)))
    write_mnist(tmp_path / "mine", small_mnist(train=12))
    assert len(data.load("mnist", tmp_path / "mine").train) == 12
    assert Handler.asked == []
    (tmp_path / "nothing here").mkdir()
    assert len(data.load("mnist", tmp_path / "nothing here").train) == 30
    assert Handler.asked


def test_a_wrong_checksum_is_refused_and_leaves_nothing(tmp_path, monkeypatch, server, empty_cache):
    files = small_mnist()
    serve_mnist(tmp_path / "www", files)
    (tmp_path / "www" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    use(monkeypatch, publication("mnist", files, (server,)))
    with pytest.raises(TangentError, match=r"t10k-images-idx3-ubyte.gz could not be downloaded.*MD5 sum"):
        data.load("mnist")
    left = {path.name for path in empty_cache.rglob("*") if path.is_file()}
    assert left == {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"}  # whole ones stay


def test_an_interrupted_download_leaves_nothing(tmp_path, server, empty_cache):
    remote = RemoteFile("file.gz", md5(b"all of it"), 100_000, (server + "short/file.gz",))
    with pytest.raises(DownloadFailure, match=r"file.gz could not be downloaded"):
        fetch(remote, empty_cache)
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]


def test_without_network_the_message_says_which_files_to_put_where(tmp_path, monkeypatch):
    use(monkeypatch, publication("mnist", small_mnist(), (CLOSED,)))
    with pytest.raises(TangentError) as refusal:
        data.load("mnist", tmp_path)
    message = str(refusal.value)
    for name in small_mnist():
        assert f"{name}.gz" in message
    for fragment in (f"not found in {tmp_path}", "refused", "DIR/MNIST/raw", "data_dir=DIR", "TANGENTLAB_DATA_DIR=DIR"):
        assert fragment in message


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist", "cifar10"])
def test_download_false_asks_nobody(name, monkeypatch):
    def never(*arguments, **keywords):
        raise AssertionError("a download was tried")

    monkeypatch.setattr(_mnist, "fetch", never)
    monkeypatch.setattr(_cifar, "fetch", never)
    with pytest.raises(TangentError, match="Downloading was not allowed"):
        data.load(name, download=False)


@pytest.mark.parametrize("served", ["binary", "python"])
def test_cifar10_is_downloaded_unpacked_and_read(tmp_path, monkeypatch, server, served):
    monkeypatch.setattr(_cifar, "RECORDS", 20)
    batches = small_cifar(20)
    forms = []
    for kind, real, write in (("binary", CIFAR10_BINARY, write_binary), ("python", CIFAR10_PYTHON, write_python)):
        archive = tmp_path / "archives" / real.archive.name
        write(tmp_path / kind / real.folder, batches)
        write_archive(archive, tmp_path / kind / real.folder)
        content = archive.read_bytes()
        if kind == served:
            (tmp_path / "www" / archive.name).write_bytes(content)
        remote = RemoteFile(archive.name, md5(content), len(content), (server + archive.name,))
        forms.append(CifarForm(real.folder, remote, real.train, real.test))
    monkeypatch.setattr(_cifar, "CIFAR10_BINARY", forms[0])
    monkeypatch.setattr(_cifar, "_FORMS", tuple(forms))
    loaded = data.load("cifar10")
    assert (len(loaded.train), len(loaded.test)) == (100, 20)
    assert loaded.train.labels[:20].tolist() == batches["data_batch_1"][0].tolist()
    assert served in loaded.provenance.source


def test_cifar10_without_network(monkeypatch, tmp_path):
    offline = [
        CifarForm(f.folder, RemoteFile(f.archive.name, f.archive.md5, 1, (CLOSED,)), f.train, f.test)
        for f in (CIFAR10_BINARY, CIFAR10_PYTHON)
    ]
    monkeypatch.setattr(_cifar, "_FORMS", tuple(offline))
    with pytest.raises(TangentError) as refusal:
        data.load("cifar10", tmp_path)
    for fragment in ("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "cifar-10-batches-bin", "data_dir=DIR"):
        assert fragment in str(refusal.value)


def test_progress_counts_every_megabyte_once(tmp_path, server, empty_cache, monkeypatch):
    content = bytes(5_000_123)
    (tmp_path / "www" / "zeros").write_bytes(content)
    remote = RemoteFile("zeros", md5(content), len(content), (server + "zeros",))
    bars = []

    @contextmanager
    def record(title, total, show):
        steps = []
        bars.append((title, total, show, steps))
        yield steps.append

    monkeypatch.setattr(_download, "progress_bar", record)
    assert fetch(remote, empty_cache, progress=True).read_bytes() == content
    ((title, total, show, steps),) = bars
    assert (title, show) == ("zeros (MB)", True)
    assert len(steps) > 10
    assert sum(steps) == pytest.approx(total) == pytest.approx(5.000123)


def test_progress_is_shown_only_when_asked_for(tmp_path, server, empty_cache, monkeypatch, capsys):
    (tmp_path / "www" / "a").write_bytes(b"a")
    remote = RemoteFile("a", md5(b"a"), 1, (server + "a",))
    fetch(remote, empty_cache, progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich draws no bar where standard error is no terminal
    fetch(remote, empty_cache / "again", progress=True)
    assert "a (MB)" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written(tmp_path, server):
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "www" / "a").write_bytes(b"a")
    with pytest.raises(DownloadFailure, match="a cannot be written to"):
        fetch(RemoteFile("a", md5(b"a"), 1, (server + "a",)), tmp_path / "file")


def test_pinned_sums_and_addresses_are_whole():
    remotes = [file.remote for publication in (MNIST, FASHION_MNIST) for file in publication.files]
    remotes += [CIFAR10_BINARY.archive, CIFAR10_PYTHON.archive]
    sums = [remote.md5 for remote in remotes]
    sums += [file.content_md5 for publication in (MNIST, FASHION_MNIST) for file in publication.files]
    sums += [value for form in (CIFAR10_BINARY, CIFAR10_PYTHON) for _, value in (*form.train, *form.test)]
    assert len(set(sums)) == len(sums) == 10 + 8 + 12
    assert all(len(value) == 32 and int(value, 16) >= 0 for value in sums)
    for remote in remotes:
        assert len(remote.urls) >= 2
        assert all(url.startswith("http") and url.endswith("/" + remote.name) for url in remote.urls)
