"""A thread that reads an iterator a few items ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
_POLL_SECONDS = 0.1


class _Ended:
    """The last item of a queue: what ended the iterator, StopIteration included."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class ReadAhead(Generic[Item]):
    """An iterator that a thread reads, at most `depth` items ahead, and closes if it is a generator.

    Close it, or use it in a `with` statement; one that is dropped ends its thread as well.
    """

    def __init__(self, items: Iterator[Item], depth: int = 2) -> None:
        self._stop = threading.Event()
        self._ready: queue.Queue[Any] = queue.Queue(depth)
        # The thread does not refer to this object, which can thus be collected. It is a daemon: a source that
        # hangs must not keep the process alive.
        self._thread = threading.Thread(
            target=_read, args=(items, self._ready, self._stop), name="tdstream-ahead", daemon=True
        )
        self._thread.start()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        item = self._ready.get()
        if isinstance(item, _Ended):
            self._ready.put(item)  # for the next call
            raise item.error
        taken: Item = item
        return taken

    def __enter__(self) -> ReadAhead[Item]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Drop the items that are ready, and return when the thread has ended."""
        self._stop.set()
        self._drop()  # lets the thread put the item in its hands
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._drop()
        with suppress(queue.Full):
            self._ready.put_nowait(_Ended(StopIteration()))

    def _drop(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._ready.get_nowait()

    def __del__(self) -> None:
        """End the thread with the iterator."""
        self._stop.set()


def _read(items: Iterator[Any], ready: queue.Queue[Any], stop: threading.Event) -> None:
    """Queue the items, then what ended them."""
    last: BaseException = StopIteration()
    try:
        for item in items:
            _put(ready, item, stop)
            del item  # it may be large, and the next one takes time
            if stop.is_set():
                break
    except BaseException as error:  # raised where the items are taken
        last = error
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()
        _put(ready, _Ended(last), stop)


def _put(ready: queue.Queue[Any], item: Any, stop: threading.Event) -> None:
    while not stop.is_set():
        with suppress(queue.Full):
            ready.put(item, timeout=_POLL_SECONDS)
            return
