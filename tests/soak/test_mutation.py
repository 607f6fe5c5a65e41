"""The harness of mutation tests: a weak test lets a mutant live, a strong one kills it."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from soak._mutants import digest, mutants
from soak._targets import Target
from soak.mutation import ROOT, Session, reviewed, summary, survivors, within

SOURCE = '''
"""A module."""

LIMIT = 3


def clipped(x: int, low: int = 0) -> int:
    """x, but at least low and at most LIMIT."""
    if x < low:
        return low
    return min(x, LIMIT)


def at_import(x: int) -> int:
    return x - 1


HIGHER = at_import(7)


def never_called(x: int) -> int:
    return x + 1
'''
WEAK = "from tangentlab_planted.module import clipped\n\n\ndef test_some() -> None:\n    assert clipped(2) == 2\n"
STRONG = (
    "from tangentlab_planted.module import HIGHER, clipped\n\n\ndef test_all() -> None:\n"
    "    assert [clipped(x) for x in (-1, 0, 1, 2, 3, 4)] == [0, 0, 1, 2, 3, 3]\n"
    "    assert clipped(1, 2) == 2 and clipped(5, 2) == 3\n"
    "    assert HIGHER == 6\n"
)
ENDLESS = (
    "from tangentlab_planted.module import clipped\n\n\ndef test_loop() -> None:\n    while clipped(2) != 2: ...\n"
)


def planted(folder: Path, test: str, pattern: str = "tests/test_planted.py") -> Session:
    """A package with one module and one test file."""
    package = folder / "tangentlab_planted"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "module.py").write_text(SOURCE)
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_planted.py").write_text(test)
    target = Target(("tangentlab_planted/module.py",), (pattern,))
    return Session(folder, target, folder / "out" / "verdicts.jsonl")


RUN = """
import sys
from pathlib import Path
from soak import _killing
from soak._killing import preload
from tests.soak.test_mutation import planted
_killing._ALLOWANCE = 2
folder = Path(sys.argv[1])
session = planted(folder, *sys.argv[2:])
coverage = session.cover()
preload(coverage.modules)
session.run(coverage, 2, lambda verdict: None)
"""


def run(folder: Path, test: str, pattern: str = "tests/test_planted.py") -> Session:
    """Try all mutants, in a fresh process: one that has run tests is full of modules."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", RUN, str(folder), test, pattern]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return planted(folder, test, pattern)


def living(session: Session) -> set[str]:
    return {verdict.id for verdict in session.known().values() if verdict.survived}


def test_a_weak_test_lets_mutants_live_and_a_strong_one_kills_them(tmp_path: Path) -> None:
    weak = run(tmp_path, WEAK)
    assert not weak.pending()
    limit, bound = "<module>: constant: LIMIT = 3 -> LIMIT = 4", "clipped: boundary: x < low -> x <= low"
    imported = "at_import: arithmetic: x - 1 -> x + 1"
    nobody = "never_called: arithmetic: x + 1 -> x - 1"
    assert {limit, bound, imported, nobody} <= living(weak)
    verdicts = weak.known()
    module = "tangentlab_planted.module"
    assert verdicts[module, "clipped: returns None: return min(x, LIMIT) -> return None"].verdict == "killed"
    assert "test_some" in verdicts[module, "clipped: branch always taken: if x < low: -> if True:"].killer
    assert (verdicts[module, nobody].verdict, verdicts[module, imported].verdict) == ("unreached", "survived")
    branch = "clipped: returns None: return low -> return None"  # its function is called, but never with a low x
    assert verdicts[module, branch].verdict == "unreached"

    strong = planted(tmp_path, STRONG)  # another test: survivors are tried again, the killed stay dead
    assert {mutant.id for _, mutant in strong.pending()} == living(weak)
    strong = run(tmp_path, STRONG)
    # At x = low both branches give the same, so no test can tell the two apart.
    assert {id for id in living(strong) if id.startswith("clipped")} == {bound}
    assert not {limit, imported} & living(strong)

    assert "1 not" not in summary(strong, {})
    seen = {(module, id): "planted" for id in living(strong)}
    assert not list(survivors(strong, seen))
    (diff,) = survivors(strong, {key: reason for key, reason in seen.items() if key[1] != bound})
    assert "-    if x < low:\n+    if x <= low:" in diff
    total = summary(strong, seen).splitlines()[-1].split()
    assert int(total[1]) == len(strong.mutants) == int(total[2]) + int(total[3])
    assert total[3] == total[4]
    assert total[5] == f"{int(total[2]) / int(total[1]):.1%}"
    assert total[6] == "100.0%"


def test_survivors_are_tried_again_with_new_tests_only(tmp_path: Path) -> None:
    run(tmp_path, WEAK)
    (tmp_path / "tests" / "test_more.py").write_text(STRONG)
    found = {verdict.id: verdict for verdict in run(tmp_path, WEAK, "tests/test_*.py").known().values()}
    assert "test_more" in found["<module>: constant: LIMIT = 3 -> LIMIT = 4"].killer
    assert found["clipped: boundary: x < low -> x <= low"].verdict == "survived"
    assert found["never_called: arithmetic: x + 1 -> x - 1"].verdict == "unreached"


def test_survivors_are_tried_again_if_tests_may_take_longer(tmp_path: Path) -> None:
    run(tmp_path, WEAK)
    longer = planted(tmp_path, WEAK)
    assert not longer.pending()
    longer.seconds *= 2
    assert {mutant.id for _, mutant in longer.pending()} == living(planted(tmp_path, WEAK))


def test_a_run_that_is_cut_off_has_tried_a_random_part(tmp_path: Path) -> None:
    all_of_them = planted(tmp_path, WEAK)
    jobs = all_of_them.mutants
    assert jobs != all_of_them.listed()
    first = Session(tmp_path, all_of_them.target, all_of_them.file, sample=5)
    assert [mutant.id for _, mutant in first.mutants] == [mutant.id for _, mutant in jobs[:5]]
    other = Session(tmp_path, all_of_them.target, all_of_them.file, sample=5, seed=1)
    assert [mutant.id for _, mutant in first.mutants] != [mutant.id for _, mutant in other.mutants]


def test_the_tests_of_a_mutant_are_of_many_kinds() -> None:
    cases = {f"test_a[{i}]": 0.5 + i / 1000 for i in range(10)} | {"test_b[1]": 1.0, "test_b[2]": 1.1, "test_c": 9.0}
    assert list(within(cases, 4)) == [*(f"test_a[{i}]" for i in range(5)), "test_b[1]"]
    assert list(within(cases, 100)) == list(cases)
    assert list(within({"test_c": 9.0}, 4)) == ["test_c"]
    assert within({}, 4) == {}


def test_a_mutant_without_an_end_is_killed(tmp_path: Path) -> None:
    session = planted(tmp_path, ENDLESS)
    chosen = "clipped: returns None: return min(x, LIMIT) -> return None"
    (path,) = session.sources
    lines = [
        {"module": session.name(path), "digest": session.digests[path], "tests": [], "id": mutant.id}
        | {"line": 0, "verdict": "killed", "seconds": 0.0, "killer": "", "limit": 60}
        for _, mutant in session.mutants
        if mutant.id != chosen
    ]
    session.file.parent.mkdir()
    session.file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    session = run(tmp_path, ENDLESS)
    assert session.known()["tangentlab_planted.module", chosen].verdict == "timeout"


def test_every_mutant_compiles_and_differs() -> None:
    path = ROOT / "tangentlab" / "kernels" / "_contract.py"
    source = path.read_text()
    found = mutants(source)
    assert len({mutant.id for mutant in found}) == len(found) > 50
    original = ast.dump(ast.parse(source))
    for mutant in found:
        tree = mutant.apply(source)
        compile(tree, str(path), "exec")
        assert ast.dump(tree) != original


@pytest.mark.parametrize(
    ("source", "operator", "expected"),
    [
        ("y = a - b", "arithmetic", {"y = a + b"}),
        ("y = a - b", "operands swapped", {"y = b - a"}),
        ("y += 1", "assigned instead", {"y = 1"}),
        ("y = -a", "sign or negation removed", {"y = a"}),
        ("y = a <= b", "boundary", {"y = a < b"}),
        ("y = a in b", "comparison negated", {"y = a not in b"}),
        ("y = a and b", "and for or", {"y = a or b"}),
        ("y = a and b and c", "operand dropped", {"y = b and c", "y = a and c", "y = a and b"}),
        ("y = x[2]", "constant", {"y = x[3]", "y = x[1]"}),
        ("y = 0.5", "constant", {"y = 1.0", "y = 0.25"}),
        ("y = a if b else c", "branch never taken", {"y = a if False else c"}),
        ("f(a)", "statement removed", {"pass"}),
        ("y = [a for a in b if c]", "filter removed", {"y = [a for a in b]"}),
        ("y = f(a, b)", "arguments swapped", {"y = f(b, a)"}),
        ("y = f(a, k=b)", "keyword removed", {"y = f(a)"}),
        ("y = any(a)", "opposite function", {"y = all(a)"}),
        ("y = x.sum(1)", "method not called", {"y = x"}),
        ("y = x.mT", "transpose removed", {"y = x"}),
        ("y = x[a:b]", "bound removed", {"y = x[:b]", "y = x[a:]"}),
        ("y = [a, b]", "element removed", {"y = [a]", "y = [b]"}),
        ("def f(x):\n    if x:\n        return 1\n    return x", "returns another", {"return 1", "return x"}),
    ],
)
def test_operators(source: str, operator: str, expected: set[str]) -> None:
    found = [mutant for mutant in mutants(source) if mutant.operator == operator]
    if source.startswith("def"):
        assert {mutant.id.rpartition(" -> ")[2] for mutant in found} == expected
    else:
        assert {ast.unparse(mutant.apply(source)) for mutant in found} == expected


@pytest.mark.parametrize(
    "source",
    [
        *('"""Words."""', "import a", "assert a < 1", "def f(a: 1) -> 2: ...", 'y = f"{a + 1}"', "x: 3"),
        *("if TYPE_CHECKING:\n    y = 1", "if __name__ == '__main__':\n    y = 1"),
    ],
)
def test_what_changes_no_number_is_left_alone(source: str) -> None:
    assert not [mutant for mutant in mutants(source) if mutant.operator != "statement removed"]


def test_layout_and_comments_do_not_matter() -> None:
    assert digest("y = 1  # one\n") == digest("y = (1)\n") != digest("y = 2\n")


def test_reviewed_survivors_have_reasons() -> None:
    """A survivor that needs no test: a change without an effect on any result, or on speed or memory alone."""
    assert all(reason.partition(":")[0] in ("equivalent", "performance") for reason in reviewed().values())
