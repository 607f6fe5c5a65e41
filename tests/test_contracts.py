"""Which package may import which, and what of it: the contracts in pyproject.toml are kept, and are able to fail."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

contracts = pytest.importorskip("tests.contracts", reason="import-linter is not installed: pip install '.[dev]'")
grimp = pytest.importorskip("grimp")

ROOT = Path(__file__).resolve().parents[1]
NAMES = {"layers": "lower layers", "faces": "private modules"}


def lint(folder: Path) -> tuple[int, str]:
    """Exit code and output of the command that `make lint` runs."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the contracts are about."""
    ignored = shutil.ignore_patterns("__pycache__", "_assets")
    shutil.copytree(ROOT / "tangentlab", tmp_path / "tangentlab", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "tests").mkdir()
    for name in ("__init__.py", "contracts.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    return tmp_path


def plant(tree: Path, module: str, statement: str) -> None:
    path = tree / f"{module}.py"
    path.write_text(f"{path.read_text()}\n\n{statement}\n")


def test_the_tree_keeps_its_contracts(tree: Path) -> None:
    code, text = lint(tree)
    assert code == 0, text
    assert "2 kept, 0 broken" in text


LAZY = "def _later() -> None:\n    {}"
TYPING = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {}"
PRIVATE = {
    "a name of a private module": ("tangentlab/store/_job", "from tangentlab.kernels._spill import read_into"),
    "a private module": ("tangentlab/store/_job", "from tangentlab.kernels import _spill"),
    "by its full name": ("tangentlab/report/_page", "import tangentlab.experiments._figure"),
    "by a relative name": ("tangentlab/training/_train", "from ..linearized import _point"),
    "inside a function": ("tangentlab/_cli/kernel/state", LAZY.format("from tangentlab.store._array import exists")),
    "for type checking": ("tangentlab/analysis/_path", TYPING.format("from tangentlab.linalg._source import Source")),
    "in a face": ("tangentlab/linalg/__init__", "from tangentlab.kernels._readout import ReadoutLike"),
    "of an inner package": ("tangentlab/store/_job", "from tangentlab.kernels.rules._use import Use"),
    "in a module below the root": ("tangentlab/demo", "from tangentlab.experiments._record import load"),
    "in the root": ("tangentlab/__init__", "from tangentlab.kernels._readout import ReadoutLike"),
}


@pytest.mark.parametrize("case", PRIVATE)
def test_a_private_module_of_another_package_is_found(tree: Path, case: str) -> None:
    module, statement = PRIVATE[case]
    plant(tree, module, statement)
    code, text = lint(tree)
    assert code == 1
    assert re.search(rf"{NAMES['faces']}.*BROKEN", text), text
    assert f"{module.replace('/', '.').removesuffix('.__init__')}, line" in text


LAYERS = {
    "linear algebra that knows networks": ("tangentlab/linalg/_eigen", "from tangentlab.kernels import ntk"),
    "an engine that knows stores": ("tangentlab/kernels/_compute", "from tangentlab import store"),
    "packages of one layer": ("tangentlab/store/_export", "from tangentlab import analysis"),
    "through the root": ("tangentlab/kernels/_compute", LAZY.format("from tangentlab import linearize")),
    "the shared modules": ("tangentlab/_files", LAZY.format("from tangentlab import data")),
    "from left to right": ("tangentlab/experiments/_runner", "from tangentlab import report"),
}


@pytest.mark.parametrize("case", LAYERS)
def test_an_import_from_a_higher_layer_is_found(tree: Path, case: str) -> None:
    plant(tree, *LAYERS[case])
    code, text = lint(tree)
    assert code == 1
    assert re.search(rf"{NAMES['layers']}.*BROKEN", text), text
    assert re.search(rf"{NAMES['faces']}.*KEPT", text), text


def test_a_new_package_must_have_a_layer(tree: Path) -> None:
    (tree / "tangentlab" / "sampling").mkdir()
    (tree / "tangentlab" / "sampling" / "__init__.py").write_text('"""New."""\n')
    code, text = lint(tree)
    assert code == 1
    assert "sampling" in text


def test_make_lint_checks_them() -> None:
    rule = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)
    assert rule
    assert "$(BIN)/lint-imports" in rule[1]


def layers() -> list[set[str]]:
    """The layers of the contract, highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return [set(re.split(r" [:|] ", line)) for line in lines]


@pytest.fixture(scope="module")
def graph() -> "grimp.ImportGraph":
    return grimp.build_graph("tangentlab", cache_dir=None)


def imported_from(module: str, face: str) -> set[str]:
    """The names that a module imports from a face."""
    path = ROOT.joinpath(*module.split("."))
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    statements = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == face]
    return {alias.name for statement in statements for alias in statement.names}


@pytest.mark.parametrize("package", sorted(path.parent.name for path in ROOT.glob("tangentlab/*/internal.py")))
def test_a_face_has_what_other_packages_use_and_no_more(graph: "grimp.ImportGraph", package: str) -> None:
    package, face = f"tangentlab.{package}", f"tangentlab.{package}.internal"
    importers = graph.find_modules_that_directly_import(face)
    assert package not in {contracts.package_of(importer) for importer in importers}, "it can import its own modules"
    declared = set(import_module(face).__all__)
    assert declared == set.union(*(imported_from(importer, face) for importer in importers))
    assert not declared & set(import_module(package).__all__), "what is public needs no other way"


PAGE = (ROOT / "docs" / "design.md").read_text()


def test_the_page_on_design_says_what_each_package_builds_on(graph: "grimp.ImportGraph") -> None:
    """The last column of its table is the imports between packages; modules that all share are left out."""
    assert not graph.find_modules_that_directly_import("tangentlab"), "import from the package that has it"
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", PAGE, re.M)
    said = {name: set(re.findall(r"`(\w+)`", others)) for name, others in rows}
    *higher, shared = layers()
    found = {name: set() for name in set.union(*higher)}
    for importer in graph.modules - {"tangentlab"}:
        for imported in graph.find_modules_directly_imported_by(importer):
            above, below = (contracts.package_of(module).removeprefix("tangentlab.") for module in (importer, imported))
            if above != below and not {above, below} & shared:
                found[above].add(below)
    assert said == found


def test_the_page_on_design_shows_the_layers() -> None:
    blocks = [block.splitlines() for block in re.findall(r"```text\n(.*?)```", PAGE, re.S)]
    *shown, last = next(block for block in blocks if "linearized" in block)
    *higher, lowest = layers()
    assert [set(line.split(", ")) for line in shown] == higher
    assert set(re.findall(r"_\w+", last)) <= lowest


def test_the_lowest_layer_is_the_private_modules_below_the_root() -> None:
    """They are the common base of all packages; everything else below the root has a layer above them."""
    *higher, lowest = layers()
    modules = {path.stem for path in (ROOT / "tangentlab").glob("*.py")} - {"__init__"}
    packages = {path.parent.name for path in (ROOT / "tangentlab").glob("*/__init__.py")}
    assert lowest == {name for name in modules if name.startswith("_")}
    assert set.union(*higher) == (modules | packages) - lowest
    assert not any(contracts.is_private(f"tangentlab.{name}") for name in lowest)
