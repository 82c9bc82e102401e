"""A bar never ends the work, and fills no log with carriage returns."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from typing import Any

import pytest
from helpers_time import Clock, Screen

from tdstream.core.progress_bar import ProgressBar
from tdstream.core.quiet_stream import QuietStream


class Broken(io.StringIO):
    """A stream that raises."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error

    def flush(self) -> None:
        raise self.error


class TestQuietStream:
    """What is only shown."""

    @pytest.mark.parametrize(
        "stream",
        [
            None,
            Broken(OSError(28, "No space left on device")),
            Broken(BrokenPipeError()),
            Broken(ValueError("I/O operation on closed file")),
            Broken(UnicodeEncodeError("ascii", "\u00e9", 0, 1, "no")),
        ],
    )
    def test_never_fails(self, stream: Any) -> None:
        """Neither the stream nor a bar on it."""
        quiet = QuietStream(stream)
        assert quiet.write("text") == 4
        quiet.flush()
        for number in ProgressBar(range(3), file=quiet, mininterval=0):
            assert number < 3

    def test_is_what_it_writes_to(self) -> None:
        """Other attributes are those of the stream."""
        assert QuietStream(Screen(terminal=True)).isatty()
        assert QuietStream(sys.__stderr__).encoding == sys.__stderr__.encoding
        assert not QuietStream(None).isatty()


class TestLines:
    """Output that is no terminal."""

    def test_first_and_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """There is a line at the start, one for each interval, and one at the end."""
        clock, file = Clock(), Screen(terminal=False)
        monkeypatch.setattr("time.monotonic", clock)
        with ProgressBar(total=100, file=file, mininterval=30) as bar:
            for _ in range(100):
                clock.sleep(1)
                bar.update()
                bar.refresh()
        places = [line.split("|")[2].split("[")[0].strip() for line in file.getvalue().splitlines()]
        assert places == ["0/100", "30/100", "60/100", "90/100", "100/100"]
        assert "\r" not in file.getvalue()

    def test_what_is_quick_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With a delay, what has ended before has no line."""
        file = Screen(terminal=False)
        with ProgressBar(total=2, file=file, delay=60) as bar:
            bar.update(2)
        assert file.getvalue() == ""

    def test_a_terminal_is_redrawn(self) -> None:
        """It gets carriage returns, and one line end."""
        screen = Screen(terminal=True)
        list(ProgressBar(range(3), file=screen, mininterval=0))
        assert "\r" in screen.getvalue()
        assert screen.getvalue().count("\n") == 1


PROGRAM = """
from tdstream.core.progress_bar import ProgressBar
done = sum(1 for _ in ProgressBar(range(5), mininterval=0))
open("done", "w").write(str(done))
"""


@pytest.mark.parametrize("stderr", ["closed", "/dev/full", "broken pipe"])
def test_real_streams(stderr: str, tmp_path: Any) -> None:
    """The work is done whatever became of stderr."""
    redirect = {"closed": "2>&-", "/dev/full": "2>/dev/full", "broken pipe": "2>&1 | true"}[stderr]
    command = f'sleep 0.1; "{sys.executable}" -c "$PROGRAM" {redirect}'
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env={**os.environ, "PROGRAM": PROGRAM}, check=True)
    assert (tmp_path / "done").read_text() == "5"
