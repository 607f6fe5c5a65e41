"""The explorer with many points: how long a frame takes while a selection grows.

    python -m benchmarks.explorer --samples 5000

Makes a page of that many samples, opens it in headless Chromium, drags a rectangle over the whole map, and reports the
frames: the time from the move of the pointer to the end of everything that the page draws for it, all views included.
The limit is 50 ms. Needs playwright and a Chromium.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import tangentlab

STEPS = 60


def main() -> None:
    """Measure and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=5000, help="Number of points.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the points.")
    chosen = parser.parse_args()
    features = torch.randn(chosen.samples, 6, generator=torch.Generator().manual_seed(chosen.seed))
    kernel = features @ features.T + torch.eye(chosen.samples)
    labels = (features[:, :3] > 0).long() @ torch.tensor([4, 2, 1])
    found = tangentlab.explore(kernel, labels=labels, k=20, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        page = found.save(Path(folder) / "explorer.html")
        frames = brush(page, chosen.samples)
        size = page.stat().st_size
    frames.sort()
    print(
        json.dumps(
            {
                "samples": chosen.samples,
                "megabytes": round(size / 1e6, 2),
                "frames": len(frames),
                "median_ms": round(frames[len(frames) // 2], 1),
                "largest_ms": round(frames[-1], 1),
                "limit_ms": 50,
            }
        )
    )


def brush(page: Path, samples: int) -> list[float]:
    """Measure the milliseconds of each frame while a rectangle is dragged over the whole map."""
    from playwright.sync_api import sync_playwright

    browser = next(path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name)))
    with sync_playwright() as driver:
        launched = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        tab = launched.new_page(viewport={"width": 1400, "height": 1000})
        tab.goto(page.as_uri())
        _wait(tab, "document.documentElement.dataset.ready === 'yes'")
        canvas: Any = tab.query_selector("#map-canvas")
        canvas.scroll_into_view_if_needed()
        box = canvas.bounding_box()
        tab.evaluate("tangentlab.views.map.scatter.frames.length = 0")
        tab.mouse.move(box["x"] + 1, box["y"] + 1)
        tab.mouse.down()
        for step in range(1, STEPS + 1):
            part = step / STEPS
            tab.mouse.move(box["x"] + 1 + part * (box["width"] - 4), box["y"] + 1 + part * (box["height"] - 4))
            time.sleep(0.02)
        _wait(tab, f"tangentlab.choice.brush.size === {samples}")
        frames: list[float] = tab.evaluate("tangentlab.views.map.scatter.frames")
        launched.close()
    return frames


def _wait(tab: Any, expression: str) -> None:
    while not tab.evaluate(expression):
        time.sleep(0.05)


if __name__ == "__main__":
    main()
