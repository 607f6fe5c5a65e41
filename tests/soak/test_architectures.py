"""The soak run of architectures: it finds what is wrong, shrinks it, writes it out, and resumes."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import tangentlab
from soak import architectures as soak
from soak.reproducer import brief, program
from tests.kernels.architectures import Architecture, Step, draw
from tests.kernels.blocks import BLOCKS

ROOT = Path(__file__).parents[2]


def has_group_norm(model: nn.Module) -> bool:
    return any(isinstance(part, nn.GroupNorm) for part in model.modules())


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of networks with a GroupNorm are wrong in one entry."""
    ntk = tangentlab.ntk

    def wrong(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
        kernel = ntk(model, *args, **kwargs)
        if has_group_norm(model):
            kernel.view(-1)[0] *= 1.001
        return kernel

    monkeypatch.setattr(tangentlab, "ntk", wrong)


LARGE = Architecture(
    (
        Step("linear", {"bias": True}, "tanh"),
        Step("group_norm", {"groups": 2}, "gelu", "residual"),
        Step("linear", {"bias": True}, "relu", "gate", again=0),
        Step("conv1d", {"bias": True, "groups": 2, "kernel": 3, "dilation": 1, "mode": "zeros"}, tied=0),
    ),
    positions=3,
    features=6,
    outputs=3,
    samples=5,
    entry="mixed",
    exit="positions",
)


@pytest.mark.usefixtures("fault")
def test_a_planted_fault_is_found_and_shrunk() -> None:
    verdict, message = soak.outcome(LARGE, "definition")
    assert verdict == "wrong"
    assert "off by" in message
    smallest, message = soak.shrink(LARGE, "definition", message)
    assert brief(smallest) == "Architecture(steps=(Step(kind='group_norm', options={'groups': 1}),), samples=1)"
    assert "off by" in message
    assert soak.outcome(LARGE, "operator")[0] == "right", "the fault is in ntk alone"


@pytest.mark.usefixtures("fault")
def test_a_run_writes_reproducers_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "architecture", lambda seed, index: LARGE if index == 1 else plain(index))
    table = soak.run(3, 0, tmp_path, names=("definition", "diagonal"))
    assert [(row.kind, row.tried, row.wrong, row.refused) for row in table] == [
        ("architectures: definition", 3, 1, 0),
        ("architectures: diagonal", 2, 0, 0),
    ]
    assert [file.name for file in tmp_path.glob("*.py")] == ["wrong-definition-1.py"]
    text = (tmp_path / "wrong-definition-1.py").read_text()
    assert "GroupNorm" in text
    assert "Conv1d" not in text


def plain(seed: int) -> Architecture:
    return Architecture((Step("linear", {"bias": True}, "tanh"),), seed)


def test_a_run_goes_on_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def noted(seed: int, index: int) -> Architecture:
        tried.append(index)
        return plain(index)

    monkeypatch.setattr(soak, "architecture", noted)
    soak.run(2, 0, tmp_path, names=("definition",))
    log = tmp_path / "architectures.jsonl"
    log.write_text(log.read_text() + '{"index": 2, "tri')  # killed while it wrote
    table = soak.run(4, 0, tmp_path, names=("definition",))
    assert tried == [0, 1, 2, 3]
    assert [row.tried for row in table] == [4]
    assert [json.loads(line).get("index") for line in log.read_text().splitlines()] == [None, 0, 1, 2, 3]
    with pytest.raises(SystemExit, match="another run"):
        soak.run(4, 1, tmp_path, names=("definition",))


@pytest.mark.parametrize("name", ["linearized_values", "stored", "labeled"])
def test_a_reproducer_stands_on_its_own(name: str, tmp_path: Path) -> None:
    """It needs nothing of this repository but the library, and does what the property does."""
    file = tmp_path / "reproducer.py"
    file.write_text(program(LARGE, name, "AssertionError: some text\nin two lines"))
    assert "from tests" not in file.read_text()
    environment = os.environ | {"PYTHONPATH": str(Path(tangentlab.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, file], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.stdout == "right\n", done.stderr


def test_every_architecture_can_be_written_out() -> None:
    for index in range(15):
        description = soak.architecture(0, index)
        assert description == draw(random.Random(f"0/{index}").choice, index)
        compile(program(description, "definition", "text"), "reproducer", "exec")
        names = {"Architecture": Architecture, "Step": Step}
        assert eval(brief(description), names) == description


def test_refusals_errors_and_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: BaseException) -> Any:
        def ntk(*args: Any, **kwargs: Any) -> Any:
            raise error

        return ntk

    odd = Architecture((Step("mapped"),))
    monkeypatch.setattr(tangentlab, "ntk", raising(tangentlab.TangentError("no.")))
    assert soak.outcome(odd, "definition") == ("refused", "no.")
    assert soak.outcome(plain(0), "definition") == ("wrong", "refused without need: no.")
    monkeypatch.setattr(tangentlab, "ntk", raising(KeyError("x")))
    assert soak.outcome(odd, "definition") == ("wrong", "KeyError: 'x'")
    monkeypatch.setattr(soak, "SECONDS", 1)
    monkeypatch.setattr(tangentlab, "ntk", lambda *args, **kwargs: __import__("time").sleep(30))
    assert soak.outcome(plain(0), "definition") == ("wrong", "TimeoutError: not finished after 1 s")


@pytest.mark.parametrize("one", ["codebook", "own_function", "reversed_gradient"])
@pytest.mark.parametrize("two", ["checkpointed", "bag"])
def test_a_network_without_either_derivative_may_be_refused_by_linearize(one: str, two: str) -> None:
    """torch has no forward derivative of the one and no second backward pass of the other: each alone is linearized."""
    steps = [Step(kind, {name: values[0] for name, values in BLOCKS[kind].options.items()}) for kind in (two, one)]
    for name in ("linearized_gradients", "linearized_values"):
        assert [soak.outcome(Architecture((step,)), name) for step in steps] == [("right", "")] * 2
        verdict, message = soak.outcome(Architecture(tuple(steps)), name)
        assert verdict == "refused"
        assert "neither forwards nor twice backwards" in message
    assert soak.outcome(Architecture(tuple(steps)), "definition") == ("right", "")
