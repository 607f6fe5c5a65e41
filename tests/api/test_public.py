"""The public interface is the committed list: what is removed or renamed fails here (docs/stability.md)."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tangentlab
from tests.api.public import arguments, packages, text

LIST = Path(__file__).with_name("public.txt")
ROOT = Path(__file__).resolve().parents[2]
HOW = "python -m tests.api.public > tests/api/public.txt"


def test_the_public_interface_is_the_committed_list() -> None:
    before, now = LIST.read_text().splitlines(), text().splitlines()
    removed = [line for line in before if line not in now]
    added = [line for line in now if line not in before]
    assert not removed, f"Removed or changed: {removed}. Only a new major version may; otherwise keep the former name."
    assert not added, f"Added: {added}. Write the list anew: {HOW}"


def test_the_list_is_not_empty() -> None:
    names = LIST.read_text()
    for name in (
        "function tangentlab.ntk(model, x1, x2=, ",
        "class tangentlab.training.TrainingSpec(",
        "module tangentlab",
    ):
        assert name in names


def test_arguments_are_what_a_caller_sees() -> None:
    def example(a: int, b: int = 1, *, c: int, **d: int) -> None: ...

    assert arguments(example) == "(a, b=, *, c, **d)"


def test_every_package_is_named_in_the_policy() -> None:
    page = (ROOT / "docs" / "stability.md").read_text()
    for package in packages():
        assert f"`{package}`" in page, package


def test_names_are_american() -> None:
    british = re.compile(r"isation|ise\b|ised\b|colour|centre|behaviour|labelled", re.IGNORECASE)
    allowed = {"noise", "raise", "otherwise", "pairwise", "precise", "normalisation"}  # the last one only warns
    for line in LIST.read_text().splitlines():
        words = {word for word in re.findall(r"[A-Za-z]+", line) if british.search(word)}
        assert words <= allowed, line


def test_the_lazy_names_are_those_of_type_checkers() -> None:
    """What ``__init__`` imports for type checkers is what it finds when the program runs."""
    tree = ast.parse(Path(str(tangentlab.__file__)).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imported = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported == set(tangentlab.__all__) - {"TangentError", "__version__"}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            found = getattr(tangentlab, alias.name)
            place = sys.modules[str(node.module)]
            assert found is (sys.modules.get(f"{node.module}.{alias.name}") or getattr(place, alias.name))


def test_unknown_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nkt'"):
        _ = tangentlab.nkt


SLOW = ("pandas", "scipy", "sklearn", "matplotlib", "zarr", "requests", "torch._dynamo")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import tangentlab", ("torch", "numpy", *SLOW)),
        ("import tangentlab.cli", ("torch", "numpy", *SLOW)),
        ("from tangentlab import ntk, NTKOperator, sketch, explain", SLOW),
        ("from tangentlab import linalg, models, data", SLOW),
        ("from tangentlab import linearize", SLOW[:-1]),
        ("from tangentlab import store", ("pandas", "scipy", "sklearn", "matplotlib")),
        ("from tangentlab import training, analysis, posterior, select", ("sklearn", "matplotlib", "zarr")),
    ],
)
def test_imports_load_no_more_than_they_need(code: str, absent: tuple[str, ...]) -> None:
    report = f"import sys\n{code}\nprint(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
