"""Do the work of one stage while the next stage does its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
_ENDED = object()


class Ahead(Generic[Item]):
    """An iterator that is read in a thread of its own, a few items ahead. Close it, or use it in `with`."""

    def __init__(self, items: Iterator[Item], depth: int = 2) -> None:
        """Begin to read.

        Args:
            items: What to read; closed by the thread, if it is a generator.
            depth: Items that may wait to be taken.
        """
        self._items = items
        self._queue: queue.Queue[Any] = queue.Queue(depth)
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        # A daemon: a reader that hangs must not keep a process alive that wants to end.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item = self._queue.get()
        if item is _ENDED:
            self._queue.put(_ENDED)  # For whoever asks again.
            if self._error is not None:
                raise self._error
            raise StopIteration
        taken: Item = item
        return taken

    def __enter__(self) -> Ahead[Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading; return when the thread has ended, which the item in its hands may delay."""
        self._stopped.set()
        while self._thread.is_alive():
            with suppress(queue.Empty):  # Make room for the thread to notice.
                self._queue.get(timeout=0.05)
        with suppress(queue.Full):  # Then it is still in there.
            self._queue.put_nowait(_ENDED)

    def _read(self) -> None:
        try:
            for item in self._items:
                self._queue.put(item)
                del item  # It may be large, and the next one takes its time.
                if self._stopped.is_set():
                    break
        except BaseException as error:  # It is raised where the items are taken.
            self._error = error
        finally:
            close = getattr(self._items, "close", None)
            if close is not None:
                close()
            self._queue.put(_ENDED)
