"""Shared by all tests: one thread per worker, so that parallel workers do not compete for cores."""

import os
from collections.abc import Callable, Iterator
from typing import Any

# Some virtual machines announce AMX and end a program that uses it with an illegal instruction, as PyTorch does in half
# precision. Set before oneDNN is loaded, and inherited by the processes that tests start.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

os.environ.setdefault("TANGENTLAB_CALIBRATION", "off")  # the same forms, and so the same digits, on every machine

import pytest
import torch

torch.set_num_threads(1)

Program = Callable[..., tuple[int, str]]


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    """The command line as a function of its arguments that returns the exit code and standard error, in one line."""
    from tangentlab.cli import main

    def run(*arguments: str) -> tuple[int, str]:
        monkeypatch.setattr("sys.argv", ["tangentlab", *arguments])
        with pytest.raises(SystemExit) as leaving:
            main()
        return int(leaving.value.code or 0), " ".join(capsys.readouterr().err.split())

    return run


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium."""
    from tests.browser import launched

    with launched() as found:
        yield found
