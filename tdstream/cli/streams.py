"""Standard streams of a command: stderr only shows; what stdout cannot take is an error in one sentence."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tdstream.core.errors import OutputError
from tdstream.core.quiet_stream import QuietStream


class Output:
    """The results of a command; raises OutputError where they cannot be written."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text."""
        with _explaining():
            return int(self._stream.write(text))

    def flush(self) -> None:
        """Write what is still in memory."""
        with _explaining():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _explaining() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        raise OutputError(f"The output cannot be written: {error.strerror or error}.") from None


def discard_output() -> None:
    """Send to nowhere what is left of stdout; Python would report the same error when it flushes at exit."""
    with suppress(OSError, ValueError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


@contextmanager
def standard_streams(*, own_process: bool) -> Iterator[None]:
    """Make the standard streams those of a command while the body runs.

    In a process of our own, streams that are closed become the null device: the next file to be opened, a
    shard for example, would get their number, and whatever a library prints.
    """
    if own_process:
        _open_closed()
    before = sys.stdout, sys.stderr
    errors = _escape_what_stdout_lacks()
    sys.stdout, sys.stderr = Output(sys.stdout), QuietStream(sys.stderr)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        if errors is not None:
            getattr(sys.stdout, "reconfigure", lambda **_: None)(errors=errors)


def _escape_what_stdout_lacks() -> str | None:
    r"""Let stdout write \u4e16 for a character that its encoding lacks; return what it did before."""
    stdout: Any = sys.stdout
    if not hasattr(stdout, "reconfigure"):
        return None
    before = str(stdout.errors)
    stdout.reconfigure(errors="backslashreplace")  # as stderr does
    return before


def _open_closed() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process


class _ShowingHandler(logging.Handler):
    """Shows log messages on stderr, above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a message."""
        from tdstream.core.progress_bar import ProgressBar  # noqa: PLC0415 - help does without tqdm

        ProgressBar.write(record.getMessage(), file=sys.stderr)


@contextmanager
def shown_log() -> Iterator[None]:
    """Show what tdstream logs, from INFO on, while the body runs."""
    logger, handler = logging.getLogger("tdstream"), _ShowingHandler()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
