"""The page in headless Chromium: drawn without errors or requests, and what it offers works."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import browser as chromium
from tests.browser import wait

pytestmark = chromium.needed
DRAWN = "tangentlab.panels.every(panel => ['drawn', 'failed'].includes(panel.dataset.state))"


class Visit(chromium.Tab):
    """The report, open."""

    def __init__(self, browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
        super().__init__(browser, page.as_uri(), DRAWN, width, scheme)


@pytest.fixture
def visit(browser: Any, page: Path) -> Iterator[Visit]:
    visited = Visit(browser, page)
    yield visited
    visited.tab.close()


def test_everything_is_drawn_and_nothing_is_asked_for(visit: Visit, page: Path) -> None:
    assert visit.complaints == []
    assert visit.tab.evaluate("tangentlab.errors") == []
    outside = [url for url in visit.requests if not url.startswith(("data:", "blob:")) and url != page.as_uri()]
    assert outside == []
    for panel in visit.tab.query_selector_all("main .panel"):
        assert panel.get_attribute("data-state") == "drawn"
        marks = panel.query_selector_all("svg .mark-line path, svg .mark-symbol path, svg .mark-rect path, svg image")
        assert len(marks) >= 1
        box = panel.query_selector("svg").bounding_box()
        assert box["width"] > 150
        assert box["height"] > 100


@pytest.mark.parametrize("width", [1280, 390])
def test_fits_the_screen(width: int, browser: Any, page: Path, tmp_path: Path) -> None:
    visited = Visit(browser, page, width)
    assert visited.tab.evaluate("document.documentElement.scrollWidth") <= width
    folder = Path(os.environ.get("TANGENTLAB_SCREENSHOTS", tmp_path))
    visited.tab.screenshot(path=folder / f"page-{width}.png", full_page=True)
    assert (folder / f"page-{width}.png").stat().st_size > 50_000
    visited.tab.close()


def test_light_and_dark(browser: Any, page: Path) -> None:
    visited = Visit(browser, page, scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "document.querySelector('main .panel svg .role-axis-title text, main .panel svg text').getAttribute('fill')"
    dark = visited.tab.evaluate(ground), visited.tab.evaluate(ink)
    visited.tab.click("#theme")
    wait(visited.tab, DRAWN)
    light = visited.tab.evaluate(ground), visited.tab.evaluate(ink)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark[0] != light[0]
    assert dark[1] != light[1]  # the charts follow
    assert visited.complaints == []
    visited.tab.close()


def test_claims_sort_and_filter(visit: Visit) -> None:
    tab, rows = visit.tab, "#all-claims tbody tr:not([hidden])"
    every = len(tab.query_selector_all(rows))
    tab.fill('[data-filter="all-claims"]', "orthonormal")
    assert 0 < len(tab.query_selector_all(rows)) < every
    assert tab.inner_text('[data-count="all-claims"]') == f"2 of {every} claims"
    tab.fill('[data-filter="all-claims"]', "")
    tab.click(".card.holds")
    assert {row.get_attribute("data-verdict") for row in tab.query_selector_all(rows)} == {"holds"}
    tab.click(".card.holds")
    tab.click("#all-claims th:nth-child(3) button")
    values = [cell.get_attribute("data-value") for cell in tab.query_selector_all("#all-claims tbody td:nth-child(3)")]
    numbers = [float(value) for value in values if value]
    assert numbers == sorted(numbers)
    assert tab.get_attribute("#all-claims th:nth-child(3)", "aria-sort") == "ascending"


def test_tables_page_sort_and_filter(visit: Visit) -> None:
    tab = visit.tab
    article = tab.query_selector("#samarin2022-fig7")
    article.query_selector("details.more summary").click()
    table = article.wait_for_selector(".data table")
    assert len(table.query_selector_all("tbody tr")) == 25
    names = [cell.inner_text() for cell in table.query_selector_all("thead th")]
    column = names.index("value") + 1
    table.query_selector(f"thead th:nth-child({column}) button").click()
    table.query_selector(f"thead th:nth-child({column}) button").click()
    cells = [cell.inner_text() for cell in table.query_selector_all(f"tbody td:nth-child({column})")]
    shown = [float(text.replace("−", "-")) for text in cells]
    assert shown == sorted(shown, reverse=True)
    article.query_selector(".data input").fill("shifted")
    assert "shifted" in table.query_selector("tbody tr td").inner_text()
    article.query_selector('[aria-label="Next rows"]').click()
    assert article.query_selector(".pager span").inner_text().startswith("26–50 of")


def test_hover_legend_zoom_and_enlarge(visit: Visit) -> None:
    tab = visit.tab
    panel = tab.query_selector("#samarin2022-fig7 .panel")
    panel.scroll_into_view_if_needed()
    opacities = (
        "panel => [...panel.querySelectorAll('.mark-line path')].map(path => path.getAttribute('opacity') ?? '1')"
    )
    assert len(set(panel.evaluate(opacities))) == 1
    panel.query_selector(".role-legend-label text").click()
    wait(tab, f"panel => new Set(({opacities})(panel)).size === 2", arg=panel)
    box = panel.query_selector("svg").bounding_box()
    domain = "panel => tangentlab.views.get(panel).view.scale('x').domain()"
    before = panel.evaluate(domain)
    tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 3)
    tab.keyboard.down("Shift")
    tab.mouse.wheel(0, -300)
    tab.keyboard.up("Shift")
    wait(tab, f"([panel, before]) => String(({domain})(panel)) !== before", arg=[panel, ",".join(map(_js, before))])
    bars = tab.query_selector("#ortiz2021-table1 .panel")
    bars.scroll_into_view_if_needed()
    bars.query_selector(".mark-rect path").hover()
    tip = tab.wait_for_selector("#vg-tooltip-element.visible")
    assert "%" in tip.inner_text()
    tab.click("#ortiz2021-fig9 .enlarge")
    wait(tab, "[...document.querySelectorAll('dialog .panel')].every(panel => panel.dataset.state === 'drawn')")
    assert len(tab.query_selector_all("dialog[open] image")) == 40
    tab.click("dialog .close")
    assert tab.query_selector("dialog[open]") is None
    assert visit.complaints == []


def _js(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)


def test_a_finger_scrolls_instead_of_zooming(browser: Any, page: Path) -> None:
    phone = browser.new_context(viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True)
    tab = phone.new_page()
    tab.goto(page.as_uri())
    wait(tab, DRAWN)
    signals = tab.evaluate("[...tangentlab.views.values()].flatMap(v => Object.keys(v.view.getState().signals))")
    assert not [name for name in signals if name.startswith("zoom")]
    assert tab.query_selector("nav details").get_attribute("open") is None
    phone.close()


def test_the_policy_stops_what_slips_in(browser: Any, page: Path, tmp_path: Path) -> None:
    """Were a tag to come through unescaped, it would not run; the page itself still works."""
    spoiled = tmp_path / "spoiled.html"
    inserted = (
        "<main id='main'><script>window.hit = 'script'</script><img src='x:' onerror=\"window.hit = 'handler'\">"
        "<style>h1 { color: rgb(1, 2, 3) }</style><iframe srcdoc='<script>parent.hit = 1</script>'></iframe>"
    )
    text = page.read_text()
    assert text.count('<main id="main">') == 1
    spoiled.write_text(text.replace('<main id="main">', inserted))
    visited = Visit(browser, spoiled)
    assert visited.tab.evaluate("window.hit") is None
    assert visited.tab.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(1, 2, 3)"
    # Not while the driver's own call is on the stack, which may evaluate.
    late = "() => new Promise(done => setTimeout(() => { try { done(eval('1')) } catch (e) { done(e.name) } }))"
    assert visited.tab.evaluate(late) == "EvalError"
    assert visited.tab.evaluate("tangentlab.errors") == []
    visited.tab.close()


def test_a_hostile_figure_runs_nothing_and_asks_for_nothing(browser: Any, runs: Path, tmp_path: Path) -> None:
    """Expressions, addresses, options and links of an untrusted figure."""
    import json

    from tangentlab.report import build

    folder = tmp_path / "runs" / "samarin2022" / "fig7"
    shutil.copytree(runs / "samarin2022" / "fig7", folder)
    figure = json.loads((folder / "figure.json").read_text())
    mark = {"mark": "bar", "encoding": {"y": {"field": "a", "type": "quantitative"}}}
    code = "(''.constructor.constructor('window.hit=1')())"
    figure["concat"] = [
        {"data": {"url": "https://example.com/data.json"}, **mark},
        {"data": {"values": [{"a": 1}]}, "transform": [{"calculate": code, "as": "b"}], **mark},
        {"data": {"values": [{"a": 1}]}, "params": [{"name": "p", "expr": "eval('window.hit=1')"}], **mark},
        {
            "data": {"values": [{"a": 1, "u": "https://example.com/i.png"}]},
            "mark": {"type": "image", "width": 20, "height": 20},
            "encoding": {"url": {"field": "u"}, "href": {"value": "javascript:window.hit=1"}},
        },
        {
            "data": {"values": [{"a": "<img src=x onerror=window.hit=1>"}]},
            "mark": {"type": "bar", "tooltip": {"content": "data"}},
            "usermeta": {
                "embedOptions": {
                    "ast": False,
                    "config": "https://example.com/c.json",
                    "actions": True,
                    "defaultStyle": "h1 { color: rgb(1, 2, 3) }",
                }
            },
        },
    ]
    (folder / "figure.json").write_text(json.dumps(figure))
    page = build(tmp_path / "runs", tmp_path / "page.html")
    visited = Visit(browser, page)
    tab = visited.tab
    for bar in tab.query_selector_all("main .panel .mark-rect path"):
        bar.hover()
    assert tab.evaluate("window.hit") is None
    assert {url for url in visited.requests if url.startswith("http")} <= set(visited.stopped)
    assert tab.evaluate("getComputedStyle(document.querySelector('h1')).color") != "rgb(1, 2, 3)"
    assert tab.query_selector("#vg-tooltip-element img") is None
    tab.close()
