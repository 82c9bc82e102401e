"""Progress bars: redrawn on terminals, lines in log files, and never a reason to fail."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

if TYPE_CHECKING:
    _Tqdm = tqdm[Any]
else:
    _Tqdm = tqdm  # generic for type checkers only

_ON_TERMINAL_S, _IN_FILE_S = 0.1, 30.0  # between two updates of a bar; between two lines


class QuietStream:
    """A text stream for what is only shown: writing to it never fails.

    The stream may be closed, None, on a full disk, or a pipe that nobody reads.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write if that is possible."""
        with suppress(OSError, ValueError, AttributeError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush if that is possible."""
        with suppress(OSError, ValueError, AttributeError):
            self._stream.flush()

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        with suppress(OSError, ValueError, AttributeError):
            return bool(self._stream.isatty())
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__.get("_stream"), name)


class ProgressBar(_Tqdm):
    """A tqdm that writes lines where its output is neither a terminal nor a notebook.

    The first line comes at the start, or after `delay` seconds; the last one at the end, unless there was no
    first; others every `mininterval` seconds, by default 30.
    """

    monitor_interval = 0  # no monitor thread, which would be alive when workers fork

    def __init__(self, iterable: Any = None, **options: Any) -> None:
        file: Any = options.get("file") or sys.stderr
        quiet = QuietStream(file)
        self._in_lines = not (quiet.isatty() or _is_notebook(file))
        self._line_at: float | None = None
        self._last_line: tuple[Any, ...] = ()
        if self._in_lines:
            options["leave"] = False  # tqdm would end the bar with an empty line
        options.setdefault("mininterval", _IN_FILE_S if self._in_lines else _ON_TERMINAL_S)
        options = {"miniters": 1, **options, "file": quiet}
        super().__init__(iterable, **options)

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:  # type: ignore[override]  # tqdm returns it, its stubs say None
        """Draw the bar, or write a line if one is due; called by tqdm."""
        if not self._in_lines:
            return bool(super().display(msg, pos))
        is_due = self._line_at is None or time.monotonic() - self._line_at >= self.mininterval
        if msg != "" and is_due:
            self._write_line()
        return False

    def close(self) -> None:
        """End the bar: with its last line, if it is written in lines."""
        if not getattr(self, "disable", True) and self._in_lines and self._line_at is not None:
            self._ema_dt = lambda: None  # makes tqdm show the overall rate
            if self._last_line != (self.n, self.total, self.postfix):
                self._write_line()
        super().close()

    def _write_line(self) -> None:
        self._line_at = time.monotonic()
        self._last_line = (self.n, self.total, self.postfix)
        self.fp.write(f"{self}\n")
        self.fp.flush()


def _is_notebook(file: Any) -> bool:
    """Return whether a stream is a notebook cell, which can redraw a line like a terminal."""
    return type(file).__module__.partition(".")[0] == "ipykernel"
