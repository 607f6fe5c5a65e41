"""Progress bars of computations inside others share one display."""

import pytest

from tangentlab import _progress
from tangentlab._progress import progress_bar


def test_bars_share_one_display() -> None:
    with progress_bar("outer", 2, show=True) as outer:
        display = _progress._active
        assert display is not None
        with progress_bar("inner", 3, show=True) as inner:
            assert _progress._active is display
            inner(2, "two of three")
            assert [task.description for task in display.tasks] == ["outer", "inner"]
            assert display.tasks[1].completed == 2
        outer()
        assert [task.description for task in display.tasks] == ["outer"]
        assert display.tasks[0].completed == 1
    assert _progress._active is None


def test_an_error_ends_the_display() -> None:
    with pytest.raises(ValueError, match="stop"), progress_bar("outer", 2, show=True):
        raise ValueError("stop")
    assert _progress._active is None


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("quiet", 1, show=False) as tick:
        tick(1, "note")
        assert _progress._active is None
    assert capsys.readouterr().err == ""
