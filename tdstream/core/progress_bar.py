"""Progress bars: redrawn on terminals, lines in log files, and never a reason to fail."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

from tdstream.core.errors import ConfigError
from tdstream.core.quiet_stream import QuietStream

if TYPE_CHECKING:
    _Tqdm = tqdm[Any]
else:
    _Tqdm = tqdm  # generic for type checkers only

_ON_TERMINAL_S, _IN_FILE_S = 0.1, 30.0  # between two updates of a bar; between two lines


class ProgressBar(_Tqdm):
    """A tqdm that writes lines where its output is neither a terminal nor a notebook.

    The first line comes at the start, or after `delay` seconds; the last one at the end, unless there was no
    first; others every `mininterval` seconds, by default 30.
    """

    monitor_interval = 0  # no monitor thread, which would be alive when workers fork

    def __init__(self, iterable: Any = None, **options: Any) -> None:
        file: Any = options.get("file") or sys.stderr
        quiet = file if isinstance(file, QuietStream) else QuietStream(file)
        self._in_lines = not (quiet.isatty() or _is_notebook(quiet))
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

    def clear(self, nolock: bool = False) -> None:
        """Clear the bar for another message; a line stays."""
        if not self._in_lines:
            super().clear(nolock=nolock)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse to be copied or pickled."""
        raise ConfigError("a progress bar writes to this process's output, and cannot be copied or pickled.")

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


def _is_notebook(file: QuietStream) -> bool:
    """Return whether a stream is a notebook cell, which can redraw a line like a terminal."""
    stream = file.__dict__.get("_stream")
    return type(stream).__module__.partition(".")[0] == "ipykernel"
