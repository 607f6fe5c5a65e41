"""The result of ``explore``: a value that writes itself as a page."""

import os
import webbrowser
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from torch import Tensor

from tangentlab._files import make_folder, write_text
from tangentlab.explorer._labels import Labels
from tangentlab.explorer._shown import Shown
from tangentlab.explorer._state import State
from tangentlab.explorer._training import Change


@dataclass(frozen=True, eq=False)
class Exploration:
    """What the explorer shows of one kernel, or of the kernels at several checkpoints.

    Attributes:
        title: Title of the page.
        shown: The samples as they are shown.
        labels: Their labels; None without any.
        states: One per checkpoint.
        changes: Each checkpoint beside the first one; empty for a single one.
        near_inputs: Nearest samples by the distance of inputs: indices and distances, (N, m); None where inputs are no
            numbers, or too many.
        heat: The samples on the heat map, (n,).
        embedding: How the map was made, ``"tsne"`` or ``"pca"``.
        readout: What the network's kernel is of; empty for a kernel that was given.
    """

    title: str
    shown: Shown = field(repr=False)
    labels: Labels | None = field(repr=False)
    states: tuple[State, ...]
    changes: tuple[Change, ...] = field(repr=False)
    near_inputs: tuple[Tensor, Tensor] | None = field(repr=False)
    heat: Tensor = field(repr=False)
    embedding: str
    readout: str

    def __len__(self) -> int:
        """Return the number of samples."""
        return self.shown.count

    def html(self, docs: str | None = None) -> str:
        """Return the page, which contains everything and loads nothing.

        Args:
            docs: Address of the documentation site, for links to its theory pages; None for the short explanations that
                the page contains.
        """
        from tangentlab.explorer._page import page

        return page(self, docs)

    def save(self, path: str | os.PathLike[str] = "explorer.html", *, docs: str | None = None) -> Path:
        """Write the page to a file, completely or not at all.

        Args:
            path: The file.
            docs: As for :meth:`html`.

        Returns:
            The file's path.

        Raises:
            TangentError: The file cannot be written.
        """
        target = Path(path).expanduser()
        make_folder(target.parent)
        write_text(target, self.html(docs))
        return target

    def show(self) -> Path:
        """Write the page to a temporary file and open it in a browser."""
        path = self.save(Path(mkdtemp(prefix="tangentlab-")) / "explorer.html")
        webbrowser.open(path.as_uri())
        return path

    def serve(self, port: int = 0, *, docs: str | None = None) -> Any:
        """Return a server on this machine that loads kernels, eigenfunctions and samples as the reader asks for them.

        >>> with page.serve() as server:
        ...     print(server.address)
        ...     server.serve_forever()

        Args:
            port: The port; 0 for a free one.
            docs: As for :meth:`html`.

        Raises:
            TangentError: The port is taken.
        """
        from tangentlab.explorer._server import Server

        return Server(self, port, docs)

    def _repr_html_(self) -> str:
        # Scripts run in a frame of its own origin, which cannot reach the notebook.
        return (
            '<iframe title="tangentlab explorer" width="100%" height="820" frameborder="0" '
            f'sandbox="allow-scripts allow-downloads allow-popups" srcdoc="{escape(self.html(), quote=True)}"></iframe>'
        )
