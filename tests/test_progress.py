"""Progress bars of computations inside others share one display."""

import io
from functools import partial

import pytest
from rich.console import Console
from rich.progress import Progress

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


def test_a_computation_that_ends_at_once_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    monkeypatch.setattr(_progress, "Console", lambda stderr: Console(file=text, force_terminal=True, width=160))
    monkeypatch.setattr(_progress, "Progress", partial(Progress, auto_refresh=False))
    with progress_bar("short", 2, show=True) as tick:
        tick(2, "both done")
    assert "both done" in text.getvalue()


def test_an_error_ends_the_display() -> None:
    with pytest.raises(ValueError, match="stop"), progress_bar("outer", 2, show=True):
        raise ValueError("stop")
    assert _progress._active is None


def test_nothing_is_shown_unless_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("quiet", 1, show=False) as tick:
        tick(1, "note")
        assert _progress._active is None
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("value", "shown"), [(None, True), ("off", False), ("OFF", False), ("on", True)])
def test_switched_off_in_the_environment(value: str | None, shown: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_notebook", lambda: True)
    monkeypatch.delenv(_progress.VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(_progress.VARIABLE, value)
    with progress_bar("bar", 1):
        assert (_progress._active is not None) is shown
    with progress_bar("asked for", 1, show=True):
        assert _progress._active is not None
