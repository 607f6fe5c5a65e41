"""The suites of networks of real size: run in pieces, with results that are kept as they come."""

import json

import pytest

from benchmarks import memory, real_size
from benchmarks.real_measure import RealCase


def test_a_suite_is_measured_in_pieces_and_never_twice(tmp_path, capsys, monkeypatch):
    record = tmp_path / "record.json"
    arguments = ["--suite", "sweep", "--only", "mlp/2/*", "mlp/4/*", "--json", str(record)]
    real_size.main([*arguments, "--most", "1"])
    assert "| mlp/2/12GiB |" in capsys.readouterr().out
    (found,) = json.loads(record.read_text()).values()
    assert found["ours"] == pytest.approx(found["contraction"] + found["passes"])
    assert found["loop differs"] < 1e-5
    assert found["plain"] > 1  # a step, and the passes of the checks

    asked = []
    monkeypatch.setattr(real_size, "run", lambda case, device: asked.append(case.name) or {"failed": "killed"})
    real_size.main(arguments)
    assert asked == ["mlp/4/12GiB"]  # the other is in the file, as it was measured
    assert "failed: killed" in capsys.readouterr().out
    real_size.main([*arguments, "--list"])
    assert capsys.readouterr().out.splitlines() == ["mlp/2/12GiB, measured", "mlp/4/12GiB"]


def test_a_case_that_does_not_exist_is_refused():
    with pytest.raises(SystemExit, match="No case of this suite is called gpt3"):
        real_size.main(["--only", "gpt3"])


def test_growth_compares_seconds_and_peaks_with_their_limits():
    def found(step, contraction, passes):
        return {"step": step, "contraction": contraction, "passes": passes, "peak": 6 * 2**30 / memory.GIB}

    measured = [
        (RealCase("gpt2-short", 125, budget="12GiB"), found(1.0, 2.0, 3.0)),
        (RealCase("gpt2-short", 250, budget="12GiB"), found(2.0, 4.0, 3.0)),
        (RealCase("gpt2-short", 500, budget="12GiB"), {"failed": "killed"}),
    ]
    lines = list(real_size.growth(measured))
    assert lines[0] == "gpt2-short, N 125 to 250: contraction 4.00 (at most 4.2), passes 2.00 (at most 2.1) times"
    assert lines[1:] == [f"gpt2-short/{n}/12GiB: peak 0.50 of the budget (at most 1.1)" for n in (125, 250)]
