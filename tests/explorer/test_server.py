"""The server: loopback only, its own host only, only what it holds, and the page loads as the reader asks."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import tangentlab
from tangentlab import TangentError, store
from tests import browser as chromium
from tests.browser import wait
from tests.explorer.visits import Visit, close


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory, trained: Any, digits: Any) -> Any:
    """A stored kernel, of which the heat map has a part."""
    network, _ = trained
    path = tmp_path_factory.mktemp("store") / "kernel.zarr"
    return store.compute(network, digits.train.inputs().double(), path, readout="pntk", progress=False)


@pytest.fixture(scope="module")
def served(stored: Any, digits: Any) -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tangentlab.explorer._explore._HEAT_BYTES", 450)  # 30 of 60 samples
        found = tangentlab.explore(stored, digits.train, classes=digits.classes, k=6, progress=False)
    assert len(found.heat) == 30
    with found.serve() as server:
        yield server.start()


def ask(server: Any, path: str, method: str = "GET", **headers: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    for name, value in {"Host": f"127.0.0.1:{server.port}", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    answer.content = answer.read()
    connection.close()
    return answer


def test_blocks_rows_and_functions_are_those_of_the_kernel(served: Any, stored: Any) -> None:
    state = served.answers.found.states[0]
    kernel = stored.to_tensor()
    size = kernel.diagonal().sqrt()
    cosine = kernel / (size[:, None] * size)
    for order in ("given", "class", "clusters", "function-2"):
        positions = served.answers._order(0, order)
        assert sorted(positions.tolist()) == list(range(60))
        block = np.frombuffer(ask(served, f"/block/0/{order}/10/20/25").content, "<f4").reshape(25, 25)
        expected = cosine[positions[10:35]][:, positions[20:45]]
        assert np.allclose(block, expected, atol=1e-6)
    around = json.loads(ask(served, "/sample/0/7").content)
    assert [i for i, _ in around["near"]] == state.near[0][7].tolist()
    assert [v for _, v in around["speakers"]] == pytest.approx(state.speakers[1][7].tolist())
    values = np.frombuffer(ask(served, "/array/eigenvalues/0").content, "<f4")
    assert np.allclose(values, state.spectrum.values.clamp(min=0), rtol=1e-5)


def test_only_loopback_and_its_own_host(served: Any) -> None:
    assert served._http.server_address[0] == "127.0.0.1"
    own = {socket.gethostbyname(socket.gethostname()), "127.0.0.2"} - {"127.0.0.1"}
    for address in own:
        with pytest.raises(OSError):
            socket.create_connection((address, served.port), timeout=2).close()
    assert ask(served, "/").status == 200
    assert ask(served, "/", Host=f"localhost:{served.port}").status == 200
    for host in ("example.org", f"example.org:{served.port}", "127.0.0.1", f"127.0.0.1.example.org:{served.port}", ""):
        assert ask(served, "/", Host=host).status == 421, host
        assert ask(served, "/array/labels", Host=host).status == 421, host
    assert ask(served, "/array/labels", Sec_Fetch_Site="cross-site").status == 403
    answer = ask(served, "/array/labels", Origin="https://example.org")
    assert answer.getheader("Access-Control-Allow-Origin") is None
    assert answer.getheader("Cross-Origin-Resource-Policy") == "same-origin"
    assert ask(served, "/", Host="x").getheader("Server").startswith("tangentlab")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_it_only_reads(method: str, served: Any) -> None:
    assert ask(served, "/", method).status == 501


@pytest.mark.parametrize(
    "path",
    [
        "/array/../../etc/passwd", "/../kernel.zarr/zarr.json", "/zarr.json", "/array/", "/array/near/0",
        "//etc/passwd",
        "/array/labels?x=1", "/block/0/class/0/0/61", "/block/0/class/40/40/30", "/block/0/class/0/0/0",
        "/block/1/class/0/0/5", "/block/0/function-99/0/0/5", "/block/0/other/0/0/5", "/sample/0/60", "/sample/9/0",
        "/sample/0/-1", "/block/0/class/0/0/999999999999", "/array/%2e%2e/x", "/index.html", "/array/labels\\..",
    ],
)  # fmt: skip
def test_nothing_else_is_served(path: str, served: Any) -> None:
    assert ask(served, path).status == 404


def test_a_port_that_is_taken(served: Any) -> None:
    with pytest.raises(TangentError, match="Port"):
        served.answers.found.serve(served.port)


@chromium.needed
def test_the_page_loads_what_the_reader_asks_for(browser: Any, served: Any) -> None:
    visit = Visit(browser, served.address)
    tab = visit.tab
    asked = set(tab.evaluate("tangentlab.requested"))
    assert "array/function/0/0" in asked
    assert "array/function/0/4" not in asked
    visit.settle("{j: 4, sample: 9, order: 'given'}")
    asked = set(tab.evaluate("tangentlab.requested"))
    assert {"array/function/0/4", "sample/0/9"} <= asked
    wait(tab, "tangentlab.requested.some(path => path.startsWith('block/0/given'))")
    assert visit.complaints == []
    assert all(url.startswith((served.address, "data:", "blob:")) for url in visit.requests)
    close(
        tab.evaluate("[...tangentlab.views.functions.values()]"), served.answers.found.states[0].functions.values[:, 4]
    )
    tab.close()


def test_many_samples_use_leading_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit for all eigenpairs: the leading ones, and the page says so."""
    monkeypatch.setattr("tangentlab.explorer._state.COMPLETE", 50)
    features = torch.randn(80, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    labels = (features[:, 0] > 0).long()
    found = tangentlab.explore(features @ features.T, labels=labels, k=8, embedding="pca", progress=False)
    state = found.states[0]
    assert not state.fit.exact
    assert state.effective_rank is None
    assert len(state.spectrum.values) == 8
    assert state.fit.accuracy(found.labels) > 0.8
    assert "leading 8 eigenpairs" in found.html()
