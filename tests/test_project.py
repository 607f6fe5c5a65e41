"""The files around the code: what `make` installs, the hooks, the workflow, and the forms for issues."""

import re
import shutil
import subprocess
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: pip install '.[dev]'")

ROOT = Path(__file__).resolve().parents[1]
FORMS = ROOT / ".github" / "ISSUE_TEMPLATE"
WORKFLOW = ROOT / ".github" / "workflows" / "test.yml"
HOOKS = ROOT / ".pre-commit-config.yaml"
DOCUMENTS = ["CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"]


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def requirements(name: str) -> list[str]:
    lines = (ROOT / name).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def planned(target: str, tmp_path: Path) -> str:
    """The commands that make would run in a checkout without an environment."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "--dry-run", f"VENV={tmp_path / 'environment'}", target]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_demo_installs_no_development_tools(tmp_path: Path) -> None:
    commands = planned("demo", tmp_path)
    assert re.findall(r"-r (\S+)", commands) == ["requirements-demo.txt"]
    assert "tangentlab demo" in commands
    # The demo draws pictures and pages; nothing else is needed beyond the base.
    assert requirements("requirements-demo.txt")[-1] == "-e .[plot,report]"
    assert not any("[" in line for line in requirements("requirements-demo.txt")[:-1])


@pytest.mark.parametrize("target", ["test", "lint", "format", "docs", "examples", "bench", "release-check"])
def test_other_targets_add_the_development_tools(target: str, tmp_path: Path) -> None:
    assert re.findall(r"-r (\S+)", planned(target, tmp_path)) == ["requirements-demo.txt", "requirements.txt"]
    assert requirements("requirements.txt")[-1] == "-e .[dev]"


def test_both_environments_have_one_torch() -> None:
    pins = {name: requirements(name)[:-1] for name in ("requirements-demo.txt", "requirements.txt")}
    assert pins["requirements-demo.txt"] == pins["requirements.txt"]
    assert re.fullmatch(r"torch==\d+\.\d+\.\d+", pins["requirements.txt"][0])


def test_workflow_runs_the_test_command_of_the_readme() -> None:
    assert re.search(r"^make test\b", (ROOT / "README.md").read_text(), re.M)
    steps = load(WORKFLOW)["jobs"]["test"]["steps"]
    assert steps[-1]["run"].strip() == "make test"
    # What a step makes by name is a rule of the Makefile.
    makefile = (ROOT / "Makefile").read_text()
    assert any(step.get("run") == "make .venv/.installed" for step in steps)
    assert re.search(r"^STAMP := \$\(VENV\)/\.installed$", makefile, re.M)


def test_workflow_covers_what_is_supported() -> None:
    jobs = load(WORKFLOW)["jobs"]["test"]["strategy"]["matrix"]["include"]
    pythons = [str(job["python"]) for job in jobs]
    assert set(pythons) == {"3.11", "3.12", "3.13", "3.14"}
    assert project()["requires-python"] == ">=3.11"
    lowest = next(re.fullmatch(r"torch>=(\d+\.\d+)", d)[1] for d in project()["dependencies"] if d.startswith("torch"))
    others = [job["torch"] for job in jobs if job.get("torch")]
    assert f"torch=={lowest}.*" in others
    assert "--upgrade torch" in others
    assert any(not job.get("torch") for job in jobs)  # the pinned one


def test_workflow_is_a_workflow() -> None:
    workflow = load(WORKFLOW)
    assert {"push", "pull_request"} <= set(workflow[True])  # YAML 1.1 reads the key `on` as true
    assert workflow["permissions"] == {"contents": "read"}
    for step in workflow["jobs"]["test"]["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"])


def hooks() -> list[dict[str, Any]]:
    return [hook for repository in load(HOOKS)["repos"] for hook in repository["hooks"]]


def test_hooks_need_no_network() -> None:
    assert [repository["repo"] for repository in load(HOOKS)["repos"]] == ["local"]
    assert {hook["language"] for hook in hooks()} <= {"system", "pygrep"}
    assert len({hook["id"] for hook in hooks()}) == len(hooks())


def test_hooks_run_tools_of_the_environment() -> None:
    extra = {re.split(r"[><=\[]", line)[0] for line in project()["optional-dependencies"]["dev"]}
    programs = [hook["entry"].split()[0] for hook in hooks() if hook["language"] == "system"]
    assert {Path(program).name for program in programs} == {"ruff", "mypy", "lint-imports", "codespell"}
    for program in programs:
        assert Path(program).parent == Path(".venv/bin")
        assert {"lint-imports": "import-linter"}.get(Path(program).name, Path(program).name) in extra
        assert (Path(sysconfig.get_path("scripts")) / Path(program).name).exists()


def tracked(hook: dict[str, Any]) -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        pytest.skip("not a checkout")
    names = [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]
    text = [name for name in names if b"\0" not in (ROOT / name).read_bytes()]
    return [ROOT / name for name in text if not re.search(hook.get("exclude", "^$"), name)]


PATTERNS = {
    "end-of-file": (b"text\n", [b"text", b"text\n\n"]),
    "trailing-whitespace": (b"two words\n", [b"text \nmore\n", b"text\t\n"]),
    "merge-conflict": (b"a < b\n", [b"<<<<<<< HEAD\n", b">>>>>>> branch\n"]),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    """They find what is wrong and nothing in the repository as it is; as pre-commit searches, in whole files."""
    hook = next(hook for hook in hooks() if hook["id"] == name)
    assert hook["language"] == "pygrep"
    multiline = "--multiline" in hook.get("args", [])
    pattern = re.compile(hook["entry"].encode(), re.MULTILINE | re.DOTALL if multiline else 0)

    def found(text: bytes) -> bool:
        return any(pattern.search(part) for part in ([text] if multiline else text.splitlines(keepends=True)))

    right, wrong = PATTERNS[name]
    assert not found(right)
    assert all(found(text) for text in wrong)
    assert [path.name for path in tracked(hook) if found(path.read_bytes())] == []


def test_every_pattern_is_tested() -> None:
    assert {hook["id"] for hook in hooks() if hook["language"] == "pygrep"} == set(PATTERNS)


@pytest.mark.parametrize("name", ["bug_report", "wrong_number", "feature_request"])
def test_issue_forms(name: str) -> None:
    """As GitHub reads them: a body of fields, each with a label and its own id."""
    form = load(FORMS / f"{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert fields
    assert {field["type"] for field in form["body"]} <= {"markdown", "input", "textarea", "dropdown", "checkboxes"}
    ids = [field["id"] for field in fields]
    assert len(set(ids)) == len(ids)
    assert all(field["attributes"]["label"] for field in fields)
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("name", ["bug_report", "wrong_number"])
def test_reports_ask_for_what_reproduces_them(name: str) -> None:
    required = {
        field["id"] for field in load(FORMS / f"{name}.yml")["body"] if field.get("validations", {}).get("required")
    }
    assert {"version", "torch", "script", "expected", "got"} <= required


def test_issues_are_reported_by_form() -> None:
    assert load(FORMS / "config.yml")["blank_issues_enabled"] is False
    assert {path.name for path in FORMS.iterdir()} == {
        "bug_report.yml",
        "wrong_number.yml",
        "feature_request.yml",
        "config.yml",
    }


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links(name: str) -> None:
    path = ROOT / name
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text())
    assert targets
    for target in targets:
        assert target.startswith("https://") or (path.parent / target).exists(), target


def test_readme_states_the_install_sizes() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    for target in ("make demo", "make test"):
        assert re.search(rf"`{target}` installs \d+ packages[^.]*, [\d.]+ [MG]B", text), target
