"""The soak run of kills: it kills, compares to the bit, finds a changed bit, and resumes."""

import copy
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from soak import kills
from soak.__main__ import main
from soak.summary import Row, markdown, text


def test_kills_of_a_store(tmp_path: Path) -> None:
    table = kills.run(2, 0, tmp_path)  # the first episode is a store by one process
    assert sum(row.tried for row in table) >= 2
    assert not any(row.wrong for row in table)
    assert not list(tmp_path.glob("kills-*")), "nothing is kept of what is right"
    lines = (tmp_path / "kills.jsonl").read_text()
    assert kills.run(2, 0, tmp_path) == table
    assert (tmp_path / "kills.jsonl").read_text() == lines


def test_a_changed_bit_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile damaged after the kill, as by a write that was cut off."""
    original = kills.KINDS["store, one process"]
    start, damaged = original.start, []

    def start_and_damage(folder: Path, moments: random.Random) -> list[object]:
        processes = start(folder, moments)
        processes[0].join()
        tile = next((folder / "kernel.zarr").glob("c/*/*"))
        content = bytearray(tile.read_bytes())
        content[5] ^= 1
        tile.write_bytes(content)
        damaged.append(tile)
        return processes

    faulty = kills.Kind(start_and_damage, original.steps, original.intact, original.finish)
    monkeypatch.setitem(kills.KINDS, "store, one process", faulty)
    record = kills.episode(0, 0, tmp_path)
    assert damaged
    assert "tiles differ after a kill" in record["wrong"]
    assert (tmp_path / "kills-0").exists(), "the evidence is kept"
    assert [row.wrong for row in kills.rows([record])] == [1, 0, 0, 0, 0, 0]


def test_another_bit_of_a_trained_weight_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = kills.whole_training("linearized")
    other = replace(result, model=copy.deepcopy(result.model))
    with torch.no_grad():
        weight = next(other.model.parameters()).view(-1)
        weight[-1] = torch.nextafter(weight[-1], weight.new_tensor(1e9))
    monkeypatch.setattr(kills, "train", lambda kind, folder: result)
    kills.finish_training("linearized", tmp_path)
    monkeypatch.setattr(kills, "train", lambda kind, folder: other)
    with pytest.raises(AssertionError):
        kills.finish_training("linearized", tmp_path)


ROWS = [Row("architectures: definition", 2000, 0, 12, 75.2), Row("kills: store", 300, 1, 0, 3661)]


def test_the_table() -> None:
    lines = text(ROWS).splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[2].split() == ["architectures:", "definition", "2,000", "0", "12", "1:15"]
    assert markdown(ROWS).splitlines()[3] == "| kills: store | 300 | 1 | 0 | 61:01 |"


@pytest.mark.parametrize("wrong", [0, 1])
def test_everything_ends_with_one_table(
    wrong: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("soak.architectures.run", lambda count, seed, out, processes: [Row("a", count, 0, 0, 1)])
    monkeypatch.setattr("soak.kills.run", lambda count, seed, out: [Row("k", count, wrong, 0, 1)])
    code = main(["--architectures", "7", "--kills", "5", "--files", "0", "--out", str(tmp_path)])
    assert code == wrong
    assert capsys.readouterr().out.count("7") == 1
    assert "| k | 5 |" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "summary.txt").exists()
