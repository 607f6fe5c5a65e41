"""The real data sets of ``../shared``, laid out once for all workers and runs of the tests."""

import getpass
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from filelock import FileLock

from tangentlab import data

REPOSITORY = Path(__file__).resolve().parents[2]
PREPARE = REPOSITORY.parent / "shared" / "data" / "prepare.py"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder into which ``../shared/data/prepare.py`` has laid MNIST and CIFAR-10."""
    if not PREPARE.is_file():
        pytest.skip("../shared is absent: the real MNIST and CIFAR-10 files are not on this machine")
    version = hashlib.md5(PREPARE.read_bytes(), usedforsecurity=False).hexdigest()[:8]
    folder = Path(tempfile.gettempdir()) / f"tangentlab-test-data-{getpass.getuser()}-{version}"
    with FileLock(f"{folder}.lock"):
        done = folder / "done"
        if not done.exists():
            subprocess.run([sys.executable, PREPARE, folder], check=True, capture_output=True)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def mnist(shared_data: Path) -> data.ImageData:
    """All of MNIST."""
    return data.load("mnist", shared_data, download=False)


@pytest.fixture(scope="session")
def cifar10(shared_data: Path) -> data.ImageData:
    """All of CIFAR-10, in the JPEG copy."""
    return data.load("cifar10", shared_data, download=False)
