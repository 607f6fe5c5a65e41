"""The published table says what the code does."""

from pathlib import Path

from tangentlab.kernels.rules import RULES, TABLE
from tangentlab.kernels.rules._table import markdown

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m tangentlab.kernels.rules._table > docs/rules.md"


def test_every_operation_is_listed() -> None:
    listed = {name for entry in TABLE for name in entry.operations}
    assert {operation.__name__ for operation in RULES} == listed
    assert all(entry.summary and entry.example for entry in TABLE)
