"""The wheel is complete, and works where there is nothing but it and its dependencies."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import tangentlab

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=400, **options)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist, built as a release would be."""
    pytest.importorskip("build", reason="build is not installed: pip install '.[dev]'")
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install '.[dev]'")
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


def test_contents(built: Path) -> None:
    wheel, sdist = next(built.glob("*.whl")), next(built.glob("*.tar.gz"))
    assert wheel.name == f"tangentlab-{tangentlab.__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    package = {f"tangentlab/{path.relative_to(ROOT / 'tangentlab').as_posix()}" for path in _files("tangentlab")}
    assert package <= set(names)
    assert "tangentlab/py.typed" in names
    assert {name.split("/")[0] for name in names} == {"tangentlab", f"tangentlab-{tangentlab.__version__}.dist-info"}
    with tarfile.open(sdist) as archive:
        inside = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "CITATION.cff",
        "tangentlab/py.typed",
        "tests/conftest.py",
    } <= inside


def _files(folder: str) -> list[Path]:
    return [path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def test_the_readme_runs_from_the_wheel_alone(built: Path, tmp_path: Path) -> None:
    """In a fresh environment; the dependencies are seen where they are installed already, tangentlab is not."""
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        wheel.extractall(own)
    # Behind its own folder, so that the copy of the wheel comes first.
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    readme = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    code = f"{readme}\nassert tangentlab.__file__.startswith({str(own)!r}), tangentlab.__file__"
    done = run(python, "-c", code, cwd=tmp_path, env=clean)
    assert "compact" in done.stdout
    version = run(python, "-c", "from tangentlab.cli import main; main()", "--version", cwd=tmp_path, env=clean)
    assert version.stdout.strip() == f"tangentlab {tangentlab.__version__}"


def test_the_package_has_its_version_in_one_place() -> None:
    assert "version" not in re.sub(r"\[tool.*", "", (ROOT / "pyproject.toml").read_text(), flags=re.S).replace(
        'dynamic = ["version"]', ""
    )
    assert tangentlab.__version__ in (ROOT / "tangentlab" / "_version.py").read_text()


def test_citation() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors", "license"} <= citation.keys()
    assert citation["version"] == tangentlab.__version__
    assert f"## {tangentlab.__version__} ({citation['date-released']})" in (ROOT / "CHANGELOG.md").read_text()
    assert [reference["year"] for reference in citation["references"]] == [2021, 2022, 2022]
