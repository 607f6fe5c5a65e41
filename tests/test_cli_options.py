"""What all commands share: help, quiet, repeated options, durations, tables, interruption, remedies."""

import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from tangentlab import store
from tangentlab._errors import TangentError
from tangentlab.cli import app
from tangentlab.store._estimate import show_seconds
from tests.conftest import Program

MLP = ("--model", "mlp", "-o", "hidden=(8,)")
SMALL = ("--data", "digits", "--n-train", "30", "--n-test", "20")


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in get_command(app).commands.items():
        inner = getattr(command, "commands", None)
        found += [(name,)] if inner is None else [(name, part) for part in inner]
    return found


def call(*arguments: Any, columns: int = 80) -> Any:
    return CliRunner().invoke(
        app, [*map(str, arguments)], env={"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns)}
    )


@pytest.mark.parametrize("command", [(), ("kernel",), *every_command()], ids=" ".join)
def test_help_speaks_in_sentences_and_names_no_types(command: tuple[str, ...]) -> None:
    text = call(*command, "--help", columns=200).stdout
    assert "Usage" in text
    assert "default: (" not in text
    assert not re.search(r"<(bool|str|int|float|path|list|int range)\b", text), text
    assert not re.search(r"\b(BOOLEAN|TEXT|INTEGER|PATH|FLOAT)\b", text), text


@pytest.mark.parametrize("command", every_command(), ids=" ".join)
def test_every_option_has_a_full_phrase(command: tuple[str, ...]) -> None:
    found = get_command(app)
    for name in command:
        found = found.commands[name]
    for parameter in found.params:
        text = getattr(parameter, "help", None)
        assert text, (command, parameter.name)
        assert text.endswith("."), (command, parameter.name, text)
        assert len(text.split()) >= 3, (command, parameter.name, text)


@pytest.mark.parametrize("command", [c for c in every_command() if c != ("help",)], ids=" ".join)
def test_every_command_can_be_quiet(command: tuple[str, ...]) -> None:
    found = get_command(app)
    for name in command:
        found = found.commands[name]
    assert any({"-q", "--quiet"} <= {*parameter.opts} for parameter in found.params)


def test_an_option_of_the_model_given_twice_is_refused(tmp_path: Path) -> None:
    for command in (("spectrum", *SMALL), ("kernel", "compute", *SMALL, "--out", tmp_path / "k"), ("bench",)):
        result = call(*command, *MLP, "-o", "hidden=(9,)")
        assert isinstance(result.exception, TangentError)
        assert "hidden was given twice" in str(result.exception)
    result = call("spectrum", *MLP, *SMALL, "-o", "seed=1", "--seed", 2)
    assert "seed was given twice" in str(result.exception)
    result = call("reproduce", "samarin2022/fig6", "--set", "samples=12", "--set", "samples=13", "--out", tmp_path)
    assert "samples was given twice" in str(result.exception)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (4.31e-5, "less than 1 ms"),
        (0.0123, "12.3 ms"),
        (1.26, "1.3 s"),
        (59, "59.0 s"),
        (150, "2.5 min"),
        (3.5 * 3600, "3.5 h"),
        (2.5 * 86400, "2.5 days"),
        (40 * 86400, "5.7 weeks"),
        (200 * 86400, "6.6 months"),
        (2.18e3 * 86400, "6.0 years"),
        (2.18e6 * 86400, "5,969 years"),
    ],
)
def test_durations_that_people_read(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    "command",
    [
        ("align", *MLP, *SMALL, "--task", "one-hot", "-k", 5),
        ("compare", *MLP, *SMALL, "--epochs", 1),
        ("spectrum", *MLP, *SMALL),
        ("reproduce", "list"),
        ("regress", *MLP, *SMALL),
    ],
    ids=lambda command: command[0],
)
def test_tables_fit_into_sixty_columns(command: tuple[Any, ...]) -> None:
    result = call(*command, "-q" if command[0] != "reproduce" else "--preset=tiny", columns=60)
    assert result.exit_code == 0, (result.output, result.exception)
    assert max(map(len, result.stdout.splitlines())) <= 60, result.stdout
    assert "…" not in result.stdout


@pytest.mark.parametrize("width", [20, 35, 45, 60, 80, 120])
def test_nothing_of_a_table_is_cut_off(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import pandas as pd

    from tangentlab._cli._output import say_table

    monkeypatch.setenv("COLUMNS", str(width))
    rows = [
        {"model": "linearized at the start", "norm_at_least": 3303.5612, "test_loss": float("nan"), "n": 12},
        {"model": "network", "norm_at_least": 1e-12, "test_loss": 0.25, "n": 3},
    ]
    say_table(pd.DataFrame(rows))
    said = capsys.readouterr().out
    words = {*said.split()}
    assert {
        "linearized",
        "at",
        "the",
        "start",
        "network",
        "norm",
        "least",
        "3303.56",
        "1e-12",
        "-",
        "0.25",
        "12",
    } <= words
    assert max(map(len, said.splitlines())) <= max(width, 25)


def test_kernel_info_and_plan_fit_into_sixty_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("kernel", "compute", *MLP, *SMALL, "--out", "k.zarr", "-q", columns=60).exit_code == 0
    for command in (("kernel", "info", "k.zarr"), ("kernel", "plan", *MLP, *SMALL)):
        result = call(*command, columns=60)
        assert result.exit_code == 0, (result.output, result.exception)
        assert max(map(len, result.stdout.splitlines())) <= 60, result.stdout


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("kernel", "compute", *MLP, *SMALL, "--out", "k.zarr"), "tangentlab kernel resume k.zarr"),
        (("train", *MLP, *SMALL, "--out", "run"), "Rerun the command to resume"),
        (("compare", *MLP, *SMALL), "--out"),
        (("spectrum", *MLP, *SMALL), "Nothing"),
        (("align", *MLP, *SMALL), "Nothing"),
        (("nads", *MLP), "Nothing"),
        (("bench", *MLP), "Nothing"),
        (("reproduce", "ortiz2021/fig2", "--out", "runs"), "Rerun the command to resume"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_ctrl_c_ends_every_command_alike(
    command: tuple[str, ...], hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: Program
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tangentlab._cli._recipe.Recipe.load_model", stop)
    monkeypatch.setattr("tangentlab.experiments.reproduce", stop)
    code, text = program(*command)
    assert code == 130
    assert text.startswith("Stopped."), text
    assert hint in text


def test_remedies_name_options_of_the_command_line(tmp_path: Path, program: Program) -> None:
    out = str(tmp_path / "k.zarr")
    cases = [
        (["kernel", "compute", *MLP, *SMALL, "--out", out, "--memory", "much"], "--memory is 'much'", "memory_budget"),
        (["kernel", "compute", *MLP, *SMALL, "--out", out, "--memory", "1KiB"], "--memory", "memory_budget"),
        (["spectrum", *MLP, *SMALL, "--memory", "1KiB"], "--memory", "memory_budget"),
        (["spectrum", *MLP, *SMALL, "--memory", "1KiB"], "fewer samples", "--batch-size"),
        (["kernel", "compute", *MLP, *SMALL, "--out", out, "--dtype", "bfloat16"], "float32", "torch."),
        (["align", *MLP, *SMALL, "--task", "cifr2"], "--task", "name="),
    ]
    for arguments, wanted, unwanted in cases:
        code, text = program(*arguments)
        assert code == 1
        assert wanted in text, text
        assert unwanted not in text, text
    assert not list(tmp_path.iterdir())


def test_a_class_of_seven_is_told_about_tasks_of_the_command_line(tmp_path: Path, program: Program) -> None:
    """CIFAR2 needs ten classes: the remedy names a task, not a Python function."""
    import numpy as np

    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 1, 4, 4)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(20) % 3)
    files = ["--data", str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")]
    code, text = program("align", *MLP, *files, "--task", "cifar2")
    assert code == 1
    assert "one-vs-rest" in text
    assert "binary(" not in text


def test_show_seconds_is_what_estimates_say() -> None:
    assert "years" in str(store.Estimate(10, 10, 1, 1, 1, 2.18e3 * 86400, 1.0, 1.0, 1.0, 1.0, 1, 1, 1, 1, "in memory"))
