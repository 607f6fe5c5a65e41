"""The published table says what the code does."""

from pathlib import Path

from tangentlab.kernels.rules import RULES, TABLE, rule
from tangentlab.kernels.rules._table import markdown

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), "run: python -m tangentlab.kernels.rules._table > docs/rules.md"


def test_every_operation_is_listed() -> None:
    listed = {name for entry in TABLE for name in entry.operations}
    assert {operation.__name__ for operation in RULES} == listed
    assert all(entry.summary and entry.example for entry in TABLE)


def test_a_line_of_the_table_is_the_first_line_of_the_docstring() -> None:
    before = list(TABLE)

    def own(call: object) -> list[object]:
        """y = x.

        More about it.
        """
        return []

    try:
        rule(len, example="len", form="gradient")(own)  # type: ignore[arg-type]
        assert TABLE[-1].summary == "y = x."
        assert RULES.pop(len) is own
    finally:
        TABLE[:] = before
