"""Downloads: several mirrors, a pinned checksum, a progress bar; the file appears only when it is complete."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tangentlab._errors import TangentError
from tangentlab._progress import Ticker, progress_bar
from tangentlab.data._published import RemoteFile

if TYPE_CHECKING:  # most programs download nothing
    import requests

_TIMEOUT = (10, 60)  # seconds to connect, and between two pieces


class DownloadFailure(TangentError):
    """A file that no mirror provides; the caller knows where else it could be."""


class _Bar:
    """The interface that pooch expects of a progress bar, implemented by the project's own."""

    def __init__(self, tick: Ticker, total: int) -> None:
        self.tick, self.total, self.seen, self.shown = tick, total, 0, 0

    def update(self, count: int) -> None:
        """Add ``count`` bytes; pooch counts in whole chunks, so the end is cut to the total."""
        self.seen += count
        step = min(self.seen, self.total) - self.shown
        if step > 0:
            self.tick(step / 1e6)
            self.shown += step

    def reset(self) -> None:
        """Do nothing. pooch calls it at the end, before an update with the total, which must not be counted twice."""
        self.seen = 0

    def close(self) -> None:
        """Do nothing. The surrounding context closes the bar."""


def fetch(remote: RemoteFile, folder: Path, progress: bool | None = None) -> Path:
    """Return the file in ``folder``, downloaded if it is not there with the right checksum.

    pooch writes to a temporary name next to the target, compares the MD5, and only then renames: an
    interrupted or damaged download leaves nothing behind.

    Args:
        remote: What to fetch.
        folder: The target folder; it is made if necessary.
        progress: Whether to show a bar; None if standard error is a terminal.

    Raises:
        DownloadFailure: When no mirror gives the file, with the reason of each.
    """
    import pooch
    import requests

    reasons = []
    for url in remote.urls:
        try:
            with progress_bar(f"{remote.name} (MB)", remote.size / 1e6, progress) as tick, _quiet_pooch():
                downloader = pooch.HTTPDownloader(progressbar=_Bar(tick, remote.size), timeout=_TIMEOUT)
                path = pooch.retrieve(url, f"md5:{remote.md5}", fname=remote.name, path=folder, downloader=downloader)
            return Path(path)
        except requests.RequestException as error:
            reasons.append(f"{url}: {_short(error)}")
        except ValueError:  # pooch's word for a wrong checksum
            reasons.append(f"{url}: what came does not have the MD5 sum {remote.md5}")
        except OSError as error:
            raise DownloadFailure(
                f"{remote.name} cannot be written to {folder}: {error}.",
                remedy="Free the disk or make the folder writable, or set XDG_CACHE_HOME to another place.",
            ) from error
    raise DownloadFailure(f"{remote.name} could not be downloaded.", why="; ".join(reasons) + ".")


def _short(error: "requests.RequestException") -> str:
    """Return the innermost reason: requests wraps it three times."""
    if error.response is not None:
        return f"HTTP {error.response.status_code}"
    inner: BaseException = error
    while inner.__cause__ or inner.__context__:
        inner = inner.__cause__ or inner.__context__ or inner
    return str(inner) or type(inner).__name__


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Silence pooch, which announces every download on standard error; the bar shows it already."""
    import pooch

    logger = pooch.get_logger()
    before = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(before)
