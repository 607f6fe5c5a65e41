"""Folders of results with a manifest that says what they belong to."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from torch import nn

from tangentlab._errors import TangentError
from tangentlab._files import make_folder, write_json
from tangentlab._reading import Unreadable, read_json
from tangentlab.store.internal import Digest, sweep, weights_hash

FORMAT = 1
MANIFEST = "manifest.json"


def open_folder(folder: str | os.PathLike[str], kind: str, identity: Mapping[str, Any]) -> Path:
    """Create a folder with its manifest, or compare the manifest that is there, so that a rerun resumes.

    What a process that was killed left unfinished is removed.

    Args:
        folder: The folder.
        kind: What it holds, in words.
        identity: Plain values that say which results these are.

    Raises:
        TangentError: The folder holds something else, or cannot be read or written.
    """
    place = make_folder(folder)
    sweep(place)
    wanted = {"format": FORMAT, "kind": kind, **identity}
    if not (place / MANIFEST).exists():
        write_json(place / MANIFEST, wanted)
        return place
    found = read_manifest(place, kind)
    other = [name for name in wanted if found.get(name) != wanted[name]]
    if other:
        raise TangentError(
            f"{place} holds {kind} of something else: {', '.join(other)} differ{'s' if len(other) == 1 else ''}.",
            "Results of different networks or samples would be mixed.",
            "Choose another folder, or pass the same arguments to resume.",
        )
    return place


@contextmanager
def discarded_if_refused(place: Path | None) -> Iterator[None]:
    """Remove the manifest of a folder, and the folder, if an error ends the work in it before anything is written.

    Corrected arguments then find no trace of the refused ones.
    """
    try:
        yield
    except TangentError:
        if place is not None and [path for path in place.rglob("*") if path.is_file()] == [place / MANIFEST]:
            (place / MANIFEST).unlink()
            with suppress(OSError):  # an empty folder of features may be in it
                place.rmdir()
        raise


def network_hash(model: nn.Module) -> str:
    """Return a digest of a network: its weights, its modules with their options, and the code of their classes."""
    classes = list(dict.fromkeys(type(module) for module in model.modules()))
    return Digest()([weights_hash(model), repr(model), classes])


def read_manifest(folder: str | os.PathLike[str], kind: str) -> dict[str, Any]:
    """Read the manifest of a folder.

    Raises:
        TangentError: There is none, or it is that of something else.
    """
    path = Path(folder).expanduser() / MANIFEST
    try:
        found = read_json(path)
        if not isinstance(found, dict) or found.get("kind") != kind:
            raise Unreadable(f"is not the manifest of {kind}")
        if found.get("format") != FORMAT:
            raise Unreadable(f"has the format {found.get('format')!r}, and this version reads {FORMAT}")
    except Unreadable as error:
        raise TangentError(f"{path} {error}.", remedy="Choose another folder.") from error
    return found
