"""One stream's pass through one epoch: text comes in, samples come out, and the place can be saved.

A place is a block of records from which everything still to be served can be made again, and the time at
which the last served sample was due. A pass that resumes there drops the samples that were due earlier.
"""

from __future__ import annotations

import copy
import logging
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from tdstream.core.errors import StateError
from tdstream.core.state_schema import COUNT, FLAG, PART, integer, listed, read_fields
from tdstream.streams.cut import RecordBlock, Sample, StreamCut, StreamDocumentCut
from tdstream.streams.shuffle_buffer import NEVER_SERVED, Due, ShuffleBuffer
from tdstream.text.records import Place
from tdstream.text.text_stream import TextBlock, TextStream
from tdstream.text.tokenize import Tokenize

logger = logging.getLogger(__name__)

_NUMBERS = ("epoch", "records", "tokens", "samples", "left_out", "served", "read", "cut")
_CURSOR = {
    **dict.fromkeys(_NUMBERS, COUNT),
    "ended": FLAG,
    "state": PART,
    "due": listed(integer(-(2**100), 2**100), 2, 2),
}


@dataclass(frozen=True, slots=True)
class StreamNodes:
    """The nodes of a live stream, from left to right."""

    source: TextStream
    tokenize: Tokenize
    cut: StreamCut | StreamDocumentCut
    shuffle: ShuffleBuffer

    def __iter__(self) -> Iterator[Any]:
        return iter((self.source, self.tokenize, self.cut, self.shuffle))


Mark = tuple[Due, int, list[tuple[Due, Sample]], list[tuple[Due, Sample]]]
"""A place between two batches of a pass that is running."""


class StreamPass:
    """One of `num_streams` streams in an epoch, from its beginning or from the cursor of a saved pass."""

    def __init__(
        self,
        nodes: StreamNodes,
        *,
        stream: int,
        num_streams: int,
        batch_size: int,
        epoch: int = 0,
        cursor: dict[str, Any] | None = None,
        strict: bool = True,
    ) -> None:
        at = check_cursor(_begin(epoch) if cursor is None else cursor)
        self.epoch: int = at["epoch"]
        self.ended: bool = at["ended"]
        """Whether there is no further batch."""
        self._nodes, self._batch_size, self._strict = nodes, batch_size, strict
        self._due: Due = (at["due"][0], at["due"][1])
        self._served, self._read, self._cut = at["served"], at["read"], at["cut"]
        place = Place(at["records"], at["state"])
        self._next = RecordBlock(place, at["tokens"], at["samples"], at["left_out"])
        self._blocks: deque[RecordBlock] = deque()
        self._pending: list[tuple[Due, Sample]] = []
        self._handed_out: list[tuple[Due, Sample]] = []  # with the last batch
        self._begin, self._all_read = place, False
        self._cutter = nodes.cut.begin(self._next)
        self._buffer = nodes.shuffle.begin(self.epoch, stream, self._due)
        self._texts: Generator[TextBlock, None, Place] = nodes.source.blocks(
            self.epoch, stream, num_streams, place, nodes.shuffle.block_records
        )

    def read(self) -> list[Sample]:
        """Return the samples of the next batch; the same ones until `advance` is called.

        Raises:
            StopIteration: If there are not enough left, again at every call.
        """
        self._settle()
        while len(self._pending) < self._batch_size and not self.ended:
            found = self._buffer.next(self._next.place.records)
            if found is not None:
                self._pending.append(found)
            elif self._all_read:
                self.ended = True
            else:
                self._fill_buffer()
        if self.ended:
            raise StopIteration
        return [sample for _, sample in self._pending]

    def advance(self) -> None:
        """Count the batch as handed out."""
        due, served = self._pending[-1][0], self._served + len(self._pending)
        self._due, self._served, self._pending, self._handed_out = due, served, [], self._pending

    def mark(self) -> Mark:
        """Return the place before the batch that was read, for `go_back`."""
        return self._due, self._served, self._pending, self._handed_out

    def go_back(self, mark: Mark) -> None:
        """Undo `advance`, if nothing else was called since."""
        self._due, self._served, self._pending, self._handed_out = mark

    def _settle(self) -> None:
        """Note which samples do not wait any more."""
        while self._handed_out:
            self._handed_out.pop()[1].block.waiting -= 1

    def cursor(self) -> dict[str, Any]:
        """Return where this pass is: JSON types, built fresh."""
        self._settle()
        while self._blocks and not self._blocks[0].waiting:
            self._blocks.popleft()
        block = self._blocks[0] if self._blocks else self._next
        return {
            **self.counts(),
            "ended": self.ended,
            "records": block.place.records,
            "state": copy.deepcopy(block.place.state),
            "tokens": block.tokens,
            "samples": block.samples,
            "left_out": block.left_out,
            "due": list(self._due),
        }

    def counts(self) -> dict[str, int]:
        """Return the epoch, the records read, the samples cut from them, and those served."""
        return {"epoch": self.epoch, "read": self._read, "cut": self._cut, "served": self._served}

    def _fill_buffer(self) -> None:
        """Read a block of records into the buffer."""
        try:
            texts = next(self._texts)
        except StopIteration as end:
            self._check_end(end.value)
            self._all_read = True
            self._buffer.end(self._next.place.records)
            return
        block, cutter = self._next, self._cutter
        documents = self._nodes.tokenize.encode(texts.texts)
        samples = cutter.feed(block, documents)
        self._blocks.append(block)
        self._next = RecordBlock(
            texts.end, block.tokens + len(documents.tokens), cutter.number, cutter.left_out
        )
        self._buffer.add(samples)
        self._read, self._cut = max(self._read, texts.end.records), max(self._cut, cutter.number)

    def _check_end(self, end: Place) -> None:
        """Refuse a source that ends before a record that a saved pass had read already."""
        if end.records < self._read:
            message = (
                f"the text ends after {end.records:,} records, but {self._read:,} of them had been read in "
                f"this epoch when the state was saved: the source has become shorter."
            )
            if self._strict:
                raise StateError(
                    f"{message} Resume with the text of the state, choose another epoch with set_epoch, or "
                    f"pass strict=False to end the epoch here."
                )
            logger.warning("%s The epoch ends here, because strict=False.", message)
        elif end == self._begin and end.state:
            # A dataset that counts for itself skips what it does not have without a word.
            logger.warning(
                "The dataset has nothing after the %s records that the state counts, so the epoch ends here. "
                "If there was more when the state was saved, the dataset has become shorter.",
                f"{end.records:,}",
            )


def _begin(epoch: int) -> dict[str, Any]:
    """Return the place before an epoch's first record."""
    start = {"epoch": epoch, "ended": False, "state": {}, "due": list(NEVER_SERVED)}
    return dict.fromkeys(_NUMBERS, 0) | start


def check_cursor(cursor: dict[str, Any]) -> dict[str, Any]:
    """Return a saved place, checked; raise StateError if it is none."""
    at = read_fields("stream", cursor, _CURSOR)
    is_start = at["records"] == 0
    if (
        at["records"] > at["read"]
        or max(at["samples"], at["served"]) > at["cut"]
        or (is_start and (at["tokens"] or at["samples"] or at["left_out"] or at["state"]))
    ):
        numbers = ", ".join(f"{field} {at[field]:,}" for field in _NUMBERS)
        raise StateError(
            f"the state's counts contradict each other ({numbers}); it was cut or changed. Load what "
            f"state_dict() returned."
        )
    return at
