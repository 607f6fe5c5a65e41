"""Pages of other samples, hostile names, many points, notebooks, and the code of all of them."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tangentlab
from tests import browser as chromium
from tests.browser import wait
from tests.explorer.conftest import HOSTILE
from tests.explorer.visits import Visit

pytestmark = chromium.needed


def test_names_and_texts_stay_text(browser: Any, page: Path, tmp_path: Path) -> None:
    visit = Visit(browser, page.as_uri())
    tab = visit.tab
    visit.settle("{sample: 1}")
    wait(tab, "document.getElementById('view-sample').dataset.sample === '1'")
    assert tab.inner_text("#sample-name") == f"{HOSTILE[1]} 1"
    assert tab.evaluate("window.hit") is None
    kernel = torch.eye(10, dtype=torch.float64) + 1
    texts = [HOSTILE[i % 5] for i in range(10)]
    hostile = tangentlab.explore(
        kernel, texts, labels=torch.arange(10) % 5, classes=HOSTILE, names=texts, title=HOSTILE[1], progress=False
    )
    other = Visit(browser, hostile.save(tmp_path / "texts.html").as_uri())
    assert other.complaints == []
    assert other.tab.evaluate("window.hit") is None
    assert other.tab.query_selector("main img") is None
    assert len(other.tab.query_selector_all("script")) == 2
    assert {card.get_attribute("data-view") for card in other.tab.query_selector_all("main > section")} == {
        "heat", "map", "sample", "spectrum", "functions",
    }  # fmt: skip
    shown = other.tab.query_selector("#functions-largest .words").inner_text()
    assert shown in [" ".join(text.split()) for text in texts]
    other.tab.close()


def test_without_labels_and_with_real_targets(browser: Any, tmp_path: Path) -> None:
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    plain = tangentlab.explore(x @ x.T + torch.eye(12), progress=False)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    real = tangentlab.explore(network, x, labels=x[:, 0], progress=False)
    assert real.states[0].outputs.loss is not None
    expected = {"heat", "map", "sample", "functions", "spectrum"}
    for found, more in ((plain, set()), (real, {"layers", "linear"})):
        visited = Visit(browser, found.save(tmp_path / "page.html").as_uri())
        cards = visited.tab.query_selector_all("main > section")
        assert {card.get_attribute("data-view") for card in cards} == expected | more
        assert {card.get_attribute("data-state") for card in cards} == {"drawn"}
        assert visited.complaints == []
        visited.tab.close()


def test_brushing_thousands_of_points(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 points are selected by a growing rectangle; benchmarks.explorer has the times of its frames."""
    monkeypatch.setattr("tangentlab.explorer._explore._HEAT_BYTES", 20_000)  # 200 samples: the map has them all
    features = torch.randn(5000, 6, generator=torch.Generator().manual_seed(0))
    kernel = features @ features.T + torch.eye(5000)
    many = tangentlab.explore(kernel, labels=(features[:, 0] > 0).long(), k=4, progress=False)
    visited = Visit(browser, many.save(tmp_path / "many.html").as_uri())
    tab = visited.tab
    tab.query_selector("#map-canvas").scroll_into_view_if_needed()
    box = tab.query_selector("#map-canvas").bounding_box()
    tab.evaluate("tangentlab.views.map.scatter.frames.length = 0")
    tab.mouse.move(box["x"] + 1, box["y"] + 1)
    tab.mouse.down()
    for step in range(1, 21):
        tab.mouse.move(box["x"] + 1 + step * (box["width"] - 4) / 20, box["y"] + 1 + step * (box["height"] - 4) / 20)
        time.sleep(0.02)
    wait(tab, "tangentlab.choice.brush.size === 5000")
    frames = tab.evaluate("tangentlab.views.map.scatter.frames")
    tab.mouse.up()
    assert len(frames) >= 3
    assert visited.complaints == []
    tab.close()


def test_a_notebook_shows_the_page_in_a_frame(browser: Any, found: Any, tmp_path: Path) -> None:
    html = found._repr_html_()
    assert "allow-same-origin" not in html
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8><body>{html}</body>")
    tab = browser.new_page()
    tab.goto((tmp_path / "notebook.html").as_uri())
    end = time.monotonic() + 60
    while time.monotonic() < end:
        frame = tab.frames[-1]
        if frame is not tab.main_frame and frame.evaluate("document.documentElement.dataset.ready") == "yes":
            break
        time.sleep(0.05)
    assert frame.evaluate("tangentlab.errors") == []
    assert tab.evaluate("window.hit") is None
    tab.close()


def test_the_code_is_well_formed(tmp_path: Path) -> None:
    """The joined modules parse as one; where TypeScript is installed, the types in their comments are checked."""
    from tangentlab.explorer import _page

    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    file = tmp_path / "explorer.mjs"
    file.write_text(_page.script())
    assert subprocess.run([node, "--check", file], capture_output=True, text=True, check=False).stderr == ""
    assert "import " not in {line[:7] for line in _page.script().splitlines()}
    compiler = shutil.which("tsc")
    if compiler is not None:
        folder = Path(_page.__file__).parent / "_assets"
        checked = subprocess.run([compiler, "-p", folder], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout
