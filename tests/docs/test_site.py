"""The site builds without a warning, needs no network, and its links and words are right."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import tangentlab
from docs.build_examples import DOCS

ROOT = DOCS.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for package in ("mkdocs", "material", "mkdocstrings", "latex2mathml"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install '.[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def html(site: Path) -> dict[str, str]:
    return {path.relative_to(site).as_posix(): path.read_text() for path in site.rglob("*.html")}


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    loaded = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=[\"']?(https?:|//)|<link[^>]*rel=[\"']?(?:stylesheet|preconnect)[^>]*https?:"
    )
    for name, text in html(site).items():
        assert not loaded.search(text), name
    for style in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*[\"']?https?:", style.read_text()), style.name


def test_formulas_are_drawn_by_the_browser(site: Path) -> None:
    texts = html(site)
    for name in ("theory/kernel/index.html", "theory/measures/index.html", "api/kernels/index.html"):
        assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"' in texts[name], name
    for name, text in texts.items():
        body = re.sub(r"<(code|pre|script)\b.*?</\1>", "", text, flags=re.S)
        assert ".. math::" not in body, name
        assert not re.search(r":(?:func|class|math):", body), name


def test_formulas_have_a_font_and_scroll_by_themselves(site: Path) -> None:
    style = (site / "style.css").read_text()
    assert re.search(r"^math \{[^}]*font-family:[^}]*\bmath;", style, re.M)
    assert re.search(r"^\.md-typeset \.math \{[^}]*overflow-x: auto", style, re.M)
    for name, text in html(site).items():
        assert "style.css" in text or name in ("results/report.html", "explorer/digits.html"), name  # these hold theirs


def test_links_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_links_and_pictures_within_the_site(site: Path) -> None:
    """mkdocs checks what is written in Markdown; this checks what came out."""
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        text = re.sub(r"<script\b.*?</script>", "", page.read_text(), flags=re.S)  # the report's libraries
        for target in re.findall(r"<(?:a|img)\b[^>]*?\s(?:href|src)=[\"']?([^\"'#?\s>]+)", text):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), f"{page.relative_to(site)}: {target}"


def test_public_names_are_in_the_reference(site: Path) -> None:
    text = "".join(text for name, text in html(site).items() if name.startswith("api/"))
    for name in tangentlab.__all__:
        if name.startswith("__"):
            continue
        thing = getattr(tangentlab, name)
        inner = getattr(thing, "__all__", []) if isinstance(thing, ModuleType) else []
        members = [m for m in inner if getattr(getattr(thing, m), "__name__", None) == m]  # functions and classes
        members = [m for m in members if getattr(tangentlab, m, None) is not getattr(thing, m)]  # not those of the top
        for part in [f"{name}.{member}" for member in members] or [name]:
            assert re.search(rf'id="tangentlab\.(?:\w+\.)?{re.escape(part)}"', text), part


def test_spelling() -> None:
    pytest.importorskip("codespell_lib", reason="codespell is not installed: pip install '.[dev]'")
    targets = ["README.md", "CHANGELOG.md", "docs", "tangentlab", "tests", "benchmarks"]
    # The report has the words of results/index.md, which is checked, and libraries that are not ours; the letters
    # of pictures in notebooks are no words.
    picture = ["--ignore-regex", r'"image/png": "[^"]*"']
    command = [sys.executable, "-m", "codespell_lib", "--skip", "*/report.html", *picture, *targets]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
