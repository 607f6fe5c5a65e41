"""Every refusal leads to an entry, every entry is reached, and its examples are refused and remedied as it says."""

import pickle
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from docs.build_examples import DOCS
from docs.troubleshooting import Refusal, page, refusals
from tangentlab import TangentError, _help, training
from tangentlab._topics import BY_MODULE, BY_WORDS
from tangentlab.cli import app
from tests.conftest import Program

ALL = list(refusals())
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)
# Nothing can be refused there without a network, a full disk or a missing package.
WITHOUT_EXAMPLE = {"not-installed", "writing", "differentiation", "command-line"}


def test_every_refusal_has_an_entry() -> None:
    assert len(ALL) > 700
    assert [refusal for refusal in ALL if refusal.topic not in _help.topics()] == []


def test_every_entry_is_reached_and_every_rule_used() -> None:
    counts = Counter(refusal.topic for refusal in ALL)
    assert [topic for topic in _help.topics() if not counts[topic]] == []
    assert {topic for topic, _ in BY_WORDS} | set(BY_MODULE.values()) == set(_help.topics())
    for name in BY_MODULE:
        path = DOCS.parent / "tangentlab" / name.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), name
    for topic, words in BY_WORDS:
        assert any(re.search(words, refusal.what) for refusal in ALL), topic


def test_a_refusal_without_entry_is_noticed() -> None:
    assert Refusal("tangentlab.newpackage._module", 1, "The thing is wrong.", "", "").topic is None
    assert Refusal("tangentlab.newpackage._module", 1, "The thing is NaN.", "", "").topic == "nan"


@pytest.mark.parametrize("topic", _help.topics())
def test_entry(topic: str) -> None:
    text = _help.entry(topic)
    assert text.startswith("# ")
    assert 300 < len(text) < 2600
    assert all(len(line) <= 150 for line in text.splitlines())
    for link in re.findall(r"\]\(([\w/.-]+\.md)\)", text):
        assert (DOCS / link).exists(), link
    for other in re.findall(r"`tangentlab help ([\w-]+)`", text):
        assert other in _help.topics()
    if topic not in WITHOUT_EXAMPLE:
        assert BLOCK.search(text)


@pytest.mark.parametrize("topic", sorted(set(_help.topics()) - WITHOUT_EXAMPLE))
def test_example(topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block is refused in its last line with a message that names this entry; the second one runs."""
    monkeypatch.chdir(tmp_path)
    refused, *remedies = BLOCK.findall(_help.entry(topic))
    namespace: dict[str, Any] = {"__name__": "example"}
    assert "# refused" in refused.rstrip().splitlines()[-1]
    with pytest.raises(TangentError) as caught:
        exec(refused, namespace)
    assert caught.value.topic == topic
    assert str(caught.value).endswith(f"More: tangentlab help {topic}")
    for remedy in remedies:
        exec(remedy, namespace)


def test_the_topic_is_kept() -> None:
    """In other processes and in the words of the command line; errors of other programs have none."""
    with pytest.raises(TangentError) as caught:
        training.SGD(lr=-1.0)
    assert caught.value.topic == "training"
    assert pickle.loads(pickle.dumps(caught.value)).topic == "training"
    with ThreadPoolExecutor(1) as pool, pytest.raises(TangentError) as again:
        pool.submit(training.SGD, -1.0).result()
    assert again.value.topic == "training"
    assert TangentError("Something is wrong.").topic is None
    assert "More" not in str(TangentError("Something is wrong."))


def test_command(program: Program) -> None:
    run = CliRunner().invoke(app, ["help"])
    assert run.exit_code == 0
    assert all(f"{topic} " in run.stdout for topic in _help.topics())
    run = CliRunner().invoke(app, ["help", "nan"])
    assert _help.title("nan") in run.stdout
    assert CliRunner().invoke(app, ["help", "batch-statistic"]).stdout.count("BatchNorm") > 1
    assert "docs/cookbook/store.md" in CliRunner().invoke(app, ["help", "stores"]).stdout
    code, said = program("help", "nothing-like-it")
    assert code == 1
    assert "There is no topic 'nothing-like-it'." in said
    code, said = program("report", "no-such-folder")
    assert code == 1
    assert said.endswith("More: tangentlab help experiments")


def test_page_has_every_message() -> None:
    text = page()
    for topic in _help.topics():
        assert f"{{#{topic}}}" in text
    assert text.count("<dt>") == len(ALL)
    assert text.count("<em>") == text.count("</em>")


def test_page_is_printed() -> None:
    command = [sys.executable, "-m", "docs.troubleshooting", "--list"]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == len(ALL)
