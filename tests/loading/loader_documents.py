"""Corpora of documents for the matrix, each of 277 samples of three tokens, and what their batches must say.

Tokens are 1, 2, 3, ...; documents end where an index says. A sample is told by its first token.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loader_truth import NUM_SAMPLES, SEQ_LEN, SHARD_TOKENS, Ids

from helpers_documents import Place, Row, expected_fields, listed, stream_of, write_indexed

BORDERS = (100, 101, 101, 333)
"""Where shards end; none is a multiple of three, one shard is empty."""


@dataclass(frozen=True)
class Kind:
    """One way in which loaders know documents."""

    options: Mapping[str, Any]
    """Of the loader."""
    lengths: tuple[int, ...]
    """Tokens of the documents."""
    starts: tuple[int, ...]
    """Where the samples begin in the stream, in order."""
    ends_rows: bool
    """Whether a sample holds nothing behind its document's, or its last document's, end."""

    def write(self, directory: Path) -> Path:
        """Write the corpus."""
        ends = list(itertools.accumulate(self.lengths))
        borders = itertools.accumulate(SHARD_TOKENS[:-1]) if sum(self.lengths) > 1000 else BORDERS
        return write_indexed(directory, ends, ends[-1], [border for border in borders if border < ends[-1]])

    def reading(self) -> Callable[[Mapping[str, Any]], Ids]:
        """Return a function that returns the samples of a batch, having looked at every number in it."""
        ends = list(itertools.accumulate(self.lengths))
        stream, numbers = stream_of(ends, ends[-1]), {start: n for n, start in enumerate(self.starts)}

        def ids(batch: Mapping[str, Any]) -> Ids:
            said = listed(batch)
            starts = [row[0] - 1 for row in said["input_ids"]]
            rows = [self.row(stream, start) for start in starts]
            tokens = [[place.token if place else 0 for place in row[:SEQ_LEN]] for row in rows]
            expected = {"input_ids": tokens, **expected_fields(rows)}
            if self.ends_rows:
                real = [[int(place is not None) for place in row[:SEQ_LEN]] for row in rows]
                expected |= {"attention_mask": real, "is_natural_stop": [row[-1] is None for row in rows]}
            assert said == expected
            return tuple(numbers[start] for start in starts)

        return ids

    def row(self, stream: list[Place], start: int) -> Row:
        """Return the places of a sample; where it has only its own documents, nothing follows their end."""
        row: Row = list(stream[start : start + SEQ_LEN + 1])
        if self.options.get("cut") == "document":
            row = [place if place and place.document == stream[start].document else None for place in row]
        elif self.options.get("cut") == "pack" and len(row) > SEQ_LEN:
            goes_on = row[SEQ_LEN - 1].document == row[SEQ_LEN].document  # type: ignore[union-attr]
            row = row if goes_on else row[:SEQ_LEN]
        return [*row, *[None] * (SEQ_LEN + 1 - len(row))]


def _cycled(lengths: tuple[int, ...], samples: tuple[int, ...]) -> tuple[int, ...]:
    """Repeat lengths of documents, which give so many samples each, until there are 277 samples."""
    found: list[int] = []
    left = NUM_SAMPLES
    for length, count in itertools.cycle(zip(lengths, samples, strict=True)):
        if left == 0:
            return tuple(found)
        assert count <= left
        found.append(length)
        left -= count
    raise AssertionError


def _windows(lengths: tuple[int, ...]) -> tuple[int, ...]:
    """Return where windows of three begin in documents, each from its own beginning."""
    ends = list(itertools.accumulate(lengths))
    spans = [range(end - length, end, SEQ_LEN) for end, length in zip(ends, lengths, strict=True)]
    return tuple(itertools.chain.from_iterable(spans))


_SHORT = _cycled((2, 3, 4, 7), (1, 1, 2, 3))
# Every three tokens are a row: a document of two goes with one of one, one of six is two rows.
_ROWS = (*((2, 1, 3, 6, 1, 2) * 55), 2, 1, 3)
_STREAM = (4, 1, 11, 3, 8, 1, 2) * 37

KINDS = {
    "documents": Kind({"documents": True}, _STREAM, tuple(range(0, 4 * NUM_SAMPLES, 4)), ends_rows=False),
    "document": Kind({"cut": "document", "documents": True}, _SHORT, _windows(_SHORT), ends_rows=True),
    "pack": Kind({"cut": "pack"}, _ROWS, tuple(range(0, 3 * NUM_SAMPLES, 3)), ends_rows=True),
}
