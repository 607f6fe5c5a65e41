"""Folders that are searched for data sets: the user's folder, then the cache."""

import os
from collections.abc import Iterable
from pathlib import Path

from tangentlab._errors import TangentError
from tangentlab._files import user_cache

DATA_DIR_VARIABLE = "TANGENTLAB_DATA_DIR"


def cache_dir() -> Path:
    """Return the folder for downloads: the platform's cache folder (on Linux below ``XDG_CACHE_HOME``).

    Examples:
        >>> from tangentlab import data
        >>> data.cache_dir().is_absolute()
        True

    See also:
        :func:`tangentlab.data.load`.
    """
    return user_cache() / "data"


def user_dir(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder that the user names, by argument or by environment variable; it must exist."""
    named = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE) or None
    if named is None:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        how = "data_dir" if data_dir is not None else f"the environment variable {DATA_DIR_VARIABLE}"
        raise TangentError(
            f"{folder} is not a folder.",
            why=f"It is named by {how}.",
            remedy="Give the folder that holds the data sets, for example the parent of MNIST/raw.",
        )
    return folder


def roots(data_dir: str | os.PathLike[str] | None) -> list[Path]:
    """Return the folders to search, in order."""
    folder = user_dir(data_dir)
    return [cache_dir()] if folder is None else [folder, cache_dir()]


def first_with_all(folders: Iterable[Path], names: Iterable[tuple[str, ...]]) -> list[Path]:
    """Return the files of the first folder that has all of them, each under any of its names; empty if none has."""
    alternatives = list(names)
    for folder in folders:
        found = [
            next((folder / name for name in several if (folder / name).is_file()), None) for several in alternatives
        ]
        paths = [path for path in found if path is not None]
        if len(paths) == len(alternatives):
            return paths
    return []


def incomplete(folders: Iterable[Path], names: Iterable[tuple[str, ...]]) -> str:
    """Describe the first folder that has some of the files but not all, in a sentence; empty if there is none."""
    alternatives = list(names)
    for folder in folders:
        missing = [several[0] for several in alternatives if not any((folder / name).is_file() for name in several)]
        if 0 < len(missing) < len(alternatives):
            return f"{folder} lacks {', '.join(missing)}. "
    return ""
