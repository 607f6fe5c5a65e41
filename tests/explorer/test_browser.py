"""The page in headless Chromium: right numbers in every view, linked views, no errors, no requests."""

import csv
import io
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import browser as chromium
from tests.browser import wait
from tests.explorer.visits import Visit, close

pytestmark = chromium.needed
VIEWS = {"heat", "map", "sample", "spectrum", "functions", "layers", "training", "linear", "nads"}


@pytest.fixture(scope="module")
def visit(browser: Any, page: Path) -> Iterator[Visit]:
    visited = Visit(browser, page.as_uri())
    yield visited
    visited.tab.close()


def test_every_view_is_drawn_and_nothing_is_asked_for(visit: Visit, page: Path) -> None:
    tab = visit.tab
    cards = {card.get_attribute("data-view"): card for card in tab.query_selector_all("main > section")}
    assert set(cards) == VIEWS
    assert {card.get_attribute("data-state") for card in cards.values()} == {"drawn"}
    assert visit.complaints == []
    assert tab.evaluate("tangentlab.errors") == []
    assert [url for url in visit.requests if not url.startswith(("data:", "blob:")) and url != page.as_uri()] == []
    for name, card in cards.items():
        assert card.query_selector(".says").inner_text().endswith("Theory")
        link = card.query_selector(".says a").get_attribute("href")
        assert tab.query_selector(f"{link} a").get_attribute("href").startswith("https://example.org/docs/")
        assert [button.get_attribute("data-save") for button in card.query_selector_all(".saves button")] == [
            "svg", "png", "csv",
        ], name  # fmt: skip


def test_numbers_are_those_of_python(visit: Visit, found: Any) -> None:
    """Every view, at both checkpoints."""
    tab = visit.tab
    for number, state in enumerate(found.states):
        visit.settle(f"{{state: {number}, sample: 3, j: 2, order: 'class'}}")
        order = tab.evaluate("tangentlab.views.heat.order()")
        labels = found.labels.classes.tolist()
        assert [labels[i] for i in order] == sorted(labels)
        cosine = state.kernel / (state.diagonal[:, None] * state.diagonal).sqrt()
        values = tab.evaluate("[[0, 5], [7, 2], [31, 59]].map(([a, b]) => tangentlab.views.heat.cosine(a, b))")
        close(values, [cosine[0, 5], cosine[7, 2], cosine[31, 59]])
        close(tab.evaluate("[...tangentlab.views.spectrum.values()]"), state.spectrum.values.clamp(min=0))
        close(tab.evaluate("[...tangentlab.views.spectrum.cumulative()]"), state.functions.energy.cumsum(0))
        phi = state.functions.values[:, 2]
        close(tab.evaluate("[...tangentlab.views.functions.values()]"), phi, 1e-3)
        assert tab.evaluate("tangentlab.views.functions.largest()") == phi.argsort(descending=True)[:12].tolist()
        assert tab.evaluate("tangentlab.views.functions.smallest()") == phi.argsort()[:12].tolist()
        facts = tab.inner_text("#functions-facts")
        assert f"{100 * float(state.functions.accuracy[2]):.1f} %" in facts
        assert f"{100 * float(state.functions.energy[2]):.1f} %" in facts
        close(tab.evaluate("[...tangentlab.views.map.x()]"), state.places[:, 0], 1e-3)
        around = tab.evaluate("tangentlab.views.sample.found()")
        assert [i for i, _ in around["near"]] == state.near[0][3].tolist()
        close([v for _, v in around["near"]], state.near[1][3])
        assert [i for i, _ in around["inputs"]] == found.near_inputs[0][3].tolist()
        assert [i for i, _ in around["speakers"]] == state.speakers[0][3].tolist()
        close([v for _, v in around["speakers"]], state.speakers[1][3])
        text = tab.inner_text("#sample-facts")
        assert f"{100 * float(state.fit.uncertainty[3]):.1f} %" in text
        layers = tab.evaluate("tangentlab.views.layers.layers()")
        close([layer["share"] for layer in layers], [layer.share for layer in state.layers])
        rows = {(r["checkpoint"], r["measure"]): r["value"] for r in tab.evaluate("tangentlab.views.training.rows()")}
        assert rows[state.name, "distance from the start"] == pytest.approx(found.changes[number].distance, abs=1e-6)
        wait(tab, "document.getElementById('training-overlaps').dataset.state === 'drawn'")
        cells = tab.evaluate("tangentlab.views.training.overlaps()")
        close([c["value"] for c in cells], found.changes[number].overlaps.flatten(), 1e-3)
        drawn = tab.evaluate("[...tangentlab.views.linear.linear()]")
        own = state.linear.gather(1, found.labels.classes[:, None])[:, 0]
        others = state.linear.scatter(1, found.labels.classes[:, None], -torch.inf).amax(1)
        close(drawn, own - others)
        close(tab.evaluate("tangentlab.views.nads.rows()")[number], state.nads.alignments, 1e-4)
    assert visit.complaints == []


def test_colors_by_loss_and_uncertainty(visit: Visit, found: Any) -> None:
    visit.settle("{state: 1}")
    for name, expected in (("loss", found.states[1].outputs.loss), ("uncertainty", found.states[1].fit.uncertainty)):
        box = visit.tab.query_selector_all("#map-tools select")[1]
        box.select_option(name)
        time.sleep(0.2)
        close(visit.tab.evaluate("[...tangentlab.views.map.numbers()]"), expected)
    visit.tab.query_selector_all("#map-tools select")[0].select_option("functions")
    time.sleep(0.2)
    close(visit.tab.evaluate("[...tangentlab.views.map.y()]"), found.states[1].functions.values[:, 1], 1e-3)
    visit.tab.query_selector_all("#map-tools select")[0].select_option("places")
    visit.tab.query_selector_all("#map-tools select")[1].select_option("label")
    time.sleep(0.2)


def test_views_are_linked(visit: Visit, found: Any) -> None:
    tab = visit.tab
    visit.settle("{state: 1, sample: 0, brush: null, order: 'class'}")
    tab.query_selector("#functions-largest button.sample >> nth=1").click()
    chosen = tab.evaluate("tangentlab.choice.sample")
    assert chosen == tab.evaluate("tangentlab.views.functions.largest()")[1]
    wait(tab, f"document.getElementById('view-sample').dataset.sample === '{chosen}'")
    assert tab.query_selector("#functions-largest button.chosen").get_attribute("data-sample") == str(chosen)
    # A rectangle on the map selects samples everywhere.
    tab.query_selector("#map-canvas").scroll_into_view_if_needed()
    box = tab.query_selector("#map-canvas").bounding_box()
    tab.mouse.move(box["x"] + 2, box["y"] + 2)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] - 2, steps=4)
    wait(tab, "tangentlab.choice.brush !== null")
    tab.mouse.up()
    selected = tab.evaluate("[...tangentlab.choice.brush]")
    assert 0 < len(selected) < 60
    wait(tab, f"document.getElementById('map-brush').innerText.startsWith('{len(selected)} selected')")
    tab.click("#map-clear")
    assert tab.evaluate("tangentlab.choice.brush") is None
    # The eigenfunction orders the heat map.
    tab.query_selector("#heat-tools select").select_option("function")
    tab.evaluate("tangentlab.choose({j: 4})")
    time.sleep(0.2)
    phi = found.states[1].functions.values[:, 4]
    assert tab.evaluate("tangentlab.views.heat.order()")[:5] == phi.argsort(descending=True)[:5].tolist()
    tab.query_selector("#heat-tools select").select_option("clusters")
    time.sleep(0.2)
    assert tab.evaluate("tangentlab.views.heat.order()") == found.states[1].clusters.tolist()
    # The slider of checkpoints changes all views.
    tab.fill("#checkpoint", "0")
    time.sleep(0.3)
    assert tab.inner_text("#checkpoint-name") == "start"
    close(tab.evaluate("[...tangentlab.views.spectrum.values()]"), found.states[0].spectrum.values.clamp(min=0))
    tab.fill("#spectrum-k", "5")
    time.sleep(0.1)
    assert f"{100 * float(found.states[0].functions.energy[:5].sum()):.1f} %" in tab.inner_text("#spectrum-facts")
    assert visit.complaints == []


def test_the_heat_map_says_which_pair_and_zooms(visit: Visit, found: Any) -> None:
    tab = visit.tab
    visit.settle("{state: 1, order: 'given'}")
    tab.query_selector("#heat-canvas").scroll_into_view_if_needed()
    box = tab.query_selector("#heat-canvas").bounding_box()
    tab.mouse.move(box["x"] + 14 + 0.26 * (box["width"] - 14), box["y"] + 14 + 0.51 * (box["height"] - 14))
    row, column = (int(part) for part in tab.get_attribute("#heat-pair", "data-pair").split(","))
    assert (row, column) == (int(0.51 * 60), int(0.26 * 60))
    state = found.states[1]
    expected = state.kernel[row, column] / (state.diagonal[row] * state.diagonal[column]).sqrt()
    assert float(tab.get_attribute("#heat-pair", "data-value")) == pytest.approx(float(expected), abs=1e-4)
    tab.click("#heat-in")
    assert tab.evaluate("tangentlab.views.heat.box().size") == 0.5
    tab.click("#heat-all")
    tab.focus("#heat-canvas")
    tab.keyboard.press("ArrowRight")
    assert tab.get_attribute("#heat-pair", "data-pair") == f"{row},{column + 1}"
    tab.keyboard.press("+")
    assert tab.evaluate("tangentlab.views.heat.box().size") == 0.5
    tab.keyboard.press("0")
    tab.keyboard.press("Enter")
    assert tab.evaluate("tangentlab.choice.sample") == row
    tab.focus("#map-canvas")
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate("tangentlab.choice.sample") != row


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_every_view_gives_its_picture_and_its_numbers(view: str, visit: Visit) -> None:
    import xml.etree.ElementTree as etree

    read = """async ([view, kind]) => { const blob = await tangentlab.takeaway(view, kind);
        const bytes = new Uint8Array(await blob.arrayBuffer()); return [...bytes]; }"""
    svg = bytes(visit.tab.evaluate(read, [view, "svg"]))
    root = etree.fromstring(svg)
    assert root.tag.endswith("svg")
    assert len(list(root.iter())) > 3
    assert bytes(visit.tab.evaluate(read, [view, "png"]))[:4] == b"\x89PNG"
    text = bytes(visit.tab.evaluate(read, [view, "csv"])).decode("utf-8-sig")
    rows = list(csv.reader(io.StringIO(text)))
    assert len(rows) > 3
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "@", "+cmd"))]
    with visit.tab.expect_download() as download:
        visit.tab.click(f'[data-view="{view}"][data-save="csv"]')
    assert download.value.suggested_filename == f"{view}.csv"


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (390, "dark")])
def test_fits_the_screen(width: int, scheme: str, browser: Any, page: Path, tmp_path: Path) -> None:
    visited = Visit(browser, page.as_uri(), width, scheme)
    assert visited.tab.evaluate("document.documentElement.scrollWidth") <= width
    ground = visited.tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 200) == (scheme == "dark")
    folder = Path(os.environ.get("TANGENTLAB_SCREENSHOTS", tmp_path))
    visited.tab.screenshot(path=folder / f"explorer-{width}-{scheme}.png", full_page=True)
    visited.tab.click("#theme")
    assert visited.tab.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    visited.tab.emulate_media(media="print")
    assert not visited.tab.is_visible(".saves")
    assert visited.complaints == []
    visited.tab.close()
