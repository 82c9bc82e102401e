"""Text stream for what is only shown."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


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
