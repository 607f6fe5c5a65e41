"""The code of the README runs."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_block(code: str) -> None:
    exec(compile(code, "README.md", "exec"), {})


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 2
