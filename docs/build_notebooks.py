"""Notebooks of the documentation: run them, and turn them into pages of the site.

    python -m docs.build_notebooks           # run all and write their outputs
    python -m docs.build_notebooks kernel    # one
    python -m docs.build_notebooks --times   # run all, write nothing, and print how long each takes

A notebook is committed with its outputs. A cell with the tag ``install`` is for hosted notebooks and does not run here.
The site has a page of each notebook, made when it is built, and the file itself for download.
"""

import base64
import io
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat

from docs.build_examples import DOCS

NOTEBOOKS = DOCS / "notebooks"
LIMIT = 300
"""Seconds for one cell; machines of tests may be busy."""


def notebooks() -> list[Path]:
    """Return all notebooks."""
    return sorted(NOTEBOOKS.glob("*.ipynb"))


def installs(cell: Any) -> bool:
    """Return whether a cell is for hosted notebooks only."""
    return "install" in cell.metadata.get("tags", [])


def execute(path: Path) -> Any:
    """Run a notebook in an empty folder and return it with its outputs; the file stays as it is."""
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    cells = notebook.cells
    notebook.cells = [cell for cell in cells if not installs(cell)]
    with tempfile.TemporaryDirectory() as folder:
        # Figures of the usual backend for notebooks, without its high resolution.
        client = NotebookClient(
            notebook, timeout=LIMIT, kernel_name="python3", resources={"metadata": {"path": folder}}
        )
        client.execute(env={**os.environ, "TANGENTLAB_PROGRESS": "off"})  # bars would leave widgets behind
    notebook.cells = cells
    for count, cell in enumerate((cell for cell in cells if cell.cell_type == "code"), 1):
        cell.execution_count = None if installs(cell) else count
        cell.outputs = _kept(cell.get("outputs", []))
        cell.metadata.pop("execution", None)
    return notebook


def _kept(outputs: list[Any]) -> list[Any]:
    """Return the outputs without notes; what a cell prints is one output."""
    kept: list[Any] = []
    for output in outputs:
        data = output.get("data", {})
        empty = (
            output.output_type == "display_data" and "image/png" not in data and not data.get("text/plain", "").strip()
        )
        if empty or output.get("name") == "stderr":
            continue
        if kept and output.output_type == "stream" and kept[-1].output_type == "stream":
            kept[-1].text += output.text
        else:
            kept.append(_small(output))
    return kept


def _small(output: Any) -> Any:
    """Return an output with fewer colors in its picture, and without what changes from run to run."""
    if "execution_count" in output:
        output.execution_count = None
    data = output.get("data", {})
    if "image/png" in data:
        from PIL import Image

        picture, small = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))), io.BytesIO()
        picture.convert("RGB").quantize(128).save(small, "PNG", optimize=True)
        data["image/png"] = base64.b64encode(small.getvalue()).decode()
        data.pop("text/plain", None)
    return output


def texts(notebook: Any) -> list[str]:
    """Return what the cells print, in their order."""
    return [
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", [])
    ]


def pictures(notebook: Any) -> list[bytes]:
    """Return the pictures of the cells as PNG, in their order."""
    found = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    return [base64.b64decode(data["image/png"]) for data in found if "image/png" in data]


def page(path: Path) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its pictures by name."""
    notebook = nbformat.read(path, as_version=4)
    parts: list[str] = []
    drawn: dict[str, bytes] = {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            text = (output.get("text") or data.get("text/plain", "")).rstrip()
            if "image/png" in data:
                name = f"{path.stem}-{len(drawn) + 1}.png"
                drawn[name] = base64.b64decode(data["image/png"])
                parts.append(f"![{_title(cell.source)}]({name})")
            elif text:
                parts.append(f"```text\n{text}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    download = f"This page is a notebook: [download it]({path.name}) and open it in Jupyter or a hosted notebook."
    return f"{title}\n\n{download}\n{rest}\n", drawn


def _title(source: str) -> str:
    """Return the words that stand for a picture: the comment above its code."""
    first = source.splitlines()[0] if source else ""
    return first.removeprefix("# ").rstrip(".") if first.startswith("#") else "Picture"


def times(chosen: list[Path]) -> str:
    """Run notebooks and return a table of the seconds that each takes, with the start of Python and all imports."""
    rows = ["| notebook | seconds | kB |", "|---|---|---|"]
    for path in chosen:
        start = time.monotonic()
        execute(path)
        rows.append(f"| {path.stem} | {time.monotonic() - start:.0f} | {path.stat().st_size / 1000:.0f} |")
    return "\n".join(rows)


def main(arguments: list[str]) -> None:
    """Run notebooks and write their outputs, or how long they take."""
    wanted = [name for name in arguments if name != "--times"]
    chosen = [path for path in notebooks() if not wanted or path.stem in wanted]
    if "--times" in arguments:
        print(times(chosen))
        return
    for path in chosen:
        print(path.stem, flush=True)
        nbformat.write(execute(path), path)


if __name__ == "__main__":
    main(sys.argv[1:])
