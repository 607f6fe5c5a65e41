"""Public functions have examples that run and print what they show, state their cost, and name what to look at next."""

import dataclasses
import doctest
import enum
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import pytest

import tangentlab

matplotlib.use("Agg")
# They need a cluster, a browser or hours, or belong to the machinery of experiments and reports; their pages show them.
WITHOUT_EXAMPLE = {
    "engines.process_pool",
    "engines.require_slurm",
    "engines.slurm_queue",
    "engines.slurm_script",
    "engines.slurm_submit",
    "experiments.open_context",
    "experiments.parse_assignments",
    "experiments.reproduce",
    "experiments.spec_of",
    "forecast.at_batch_statistics",
    "kernels.compute_factors",
    "report.attribution",
    "report.build",
}
# What they do depends on neither samples nor weights: they look up a name or a folder, convert a text or an argument,
# look at a shape, or calculate with a few numbers. The two engines do nothing but call the tasks that they are given.
WITHOUT_COST = {
    "data.available",
    "data.cache_dir",
    "engines.InProcess",
    "engines.Shard",
    "engines.array_of",
    "engines.as_engine",
    "engines.slurm_script",
    "experiments.available",
    "experiments.get",
    "experiments.papers",
    "experiments.parse_assignments",
    "experiments.spec_of",
    "models.available",
    "plot.is_images",
    "solvers.method_costs",
    "solvers.recommend",
}


def packages() -> list[str]:
    """The public packages and modules with their own ``__all__``."""
    below = [module.name for module in pkgutil.iter_modules(tangentlab.__path__)]
    public = [name for name in below if not name.startswith("_") and name not in ("cli", "demo")]
    return ["", *public, "kernels.reference"]


def documented(package: str) -> Iterator[tuple[str, Any]]:
    """Public functions and classes of a package by their names without ``tangentlab``."""
    module = importlib.import_module(f"tangentlab.{package}".rstrip("."))
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing) and not isinstance(thing, ModuleType):
            yield f"{package}.{name}".lstrip("."), thing


def lacking(section: str) -> list[str]:
    """Public functions whose docstrings do not have a section. One that is public in two places is listed once."""
    seen: dict[int, tuple[str, Any]] = {}
    for package in packages():
        for name, thing in documented(package):
            if inspect.isfunction(thing):
                seen.setdefault(id(thing), (name, thing))
    return sorted(
        name for name, thing in seen.values() if not re.search(rf"^{section}:$", inspect.getdoc(thing) or "", re.M)
    )


@pytest.mark.parametrize("section", ["Examples", "See also"])
def test_every_public_function(section: str) -> None:
    assert sorted(set(lacking(section)) - WITHOUT_EXAMPLE) == []


def test_no_exception_is_left_over() -> None:
    assert sorted(WITHOUT_EXAMPLE - set(lacking("Examples"))) == []


def computes(thing: Any) -> bool:
    """Whether a function or class has a cost to state.

    All functions have one, and all classes that do more than hold values: not dataclasses (results, specs, losses),
    unless they are kernels, methods of attribution or fits that predict, and not exceptions, enumerations, tuples and
    interfaces.
    """
    if not isinstance(thing, type):
        return True
    if dataclasses.is_dataclass(thing):
        own = any(hasattr(thing, name) for name in ("__matmul__", "predict"))
        return not inspect.isabstract(thing) and (own or issubclass(thing, tangentlab.attribution.Method))
    values = issubclass(thing, Exception | enum.Enum | tuple)
    return not (values or inspect.isabstract(thing) or getattr(thing, "_is_protocol", False))


def states_cost(thing: Any) -> bool:
    """Whether a sentence about the cost is in a docstring; for a dataclass, also in that of its method ``predict``."""
    predict = getattr(thing, "predict", None) if dataclasses.is_dataclass(thing) else None
    texts = [inspect.getdoc(one) or "" for one in (thing, predict) if one is not None]
    return any(re.search(r"(?:^|\. )Costs?\b", text, re.M) for text in texts)


def without_cost() -> list[str]:
    """Public functions and classes that do not state their cost. One that is public in two places is listed once."""
    seen: dict[int, tuple[str, Any]] = {}
    for package in packages():
        for name, thing in documented(package):
            if computes(thing):
                seen.setdefault(id(thing), (name, thing))
    return sorted(name for name, thing in seen.values() if not states_cost(thing))


def test_every_cost_is_stated() -> None:
    assert without_cost() == sorted(WITHOUT_COST)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("linalg.trace", True),
        ("estimators.NTKRegressor", True),
        ("SketchedKernel", True),
        ("attribution.Trak", True),
        ("linalg.Regression", True),
        ("attribution.Method", False),
        ("linalg.Spectrum", False),
        ("linalg.Source", False),
        ("training.Loss", False),
        ("experiments.Verdict", False),
        ("TangentError", False),
    ],
)
def test_what_has_a_cost(name: str, expected: bool) -> None:
    assert computes(dict(documented(name.rpartition(".")[0]))[name]) is expected


@pytest.mark.parametrize("text", ["Compute the trace.", "Compute the trace, whatever it costs.", "Costly."])
def test_a_function_without_cost_is_noticed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tangentlab.linalg.trace, "__doc__", text)
    assert "linalg.trace" in without_cost()


def test_a_function_without_example_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tangentlab.linalg.trace, "__doc__", "Compute the trace.")
    assert "linalg.trace" in lacking("Examples")


@pytest.mark.parametrize("package", packages(), ids=lambda name: name or "tangentlab")
def test_examples(package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in an empty folder, with nothing but what it imports."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner, finder = doctest.DocTestRunner(optionflags=flags), doctest.DocTestFinder(recurse=False)
    said: list[str] = []
    for name, thing in documented(package):
        if ">>>" not in (inspect.getdoc(thing) or ""):
            continue
        for test in finder.find(thing, name, globs={}):
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            monkeypatch.chdir(folder)
            runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


@pytest.mark.parametrize("package", packages(), ids=lambda name: name or "tangentlab")
def test_references(package: str) -> None:
    """What a section names exists."""
    for name, thing in documented(package):
        section = re.search(r"^See also:\n((?: +.*\n?)+)", inspect.getdoc(thing) or "", re.M)
        for target in re.findall(r"`~?([\w.]+)`", section[1]) if section else []:
            head, _, last = target.rpartition(".")
            head = head.replace("tangentlab.reference", "tangentlab.kernels.reference")
            assert hasattr(importlib.import_module(head), last), f"{name}: {target}"
