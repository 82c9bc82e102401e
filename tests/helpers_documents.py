"""What batches say of documents, computed anew by walking from token to token."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from helpers_corpus import write_corpus


class Place(NamedTuple):
    """A token of a row, and the document that it belongs to."""

    token: int
    document: int


Row = list[Place | None]
"""T + 1 places: the inputs and the last label; None is padding, or what belongs to no document of the row."""


def stream_of(ends: Sequence[int], total: int) -> list[Place]:
    """Return a stream of the tokens 1, 2, 3, ..., whose documents end just before these places."""
    return [Place(place + 1, sum(end <= place for end in ends)) for place in range(total)]


def write_indexed(directory: Path, ends: Sequence[int], total: int, borders: Sequence[int] = ()) -> Path:
    """Write the tokens 1, 2, 3, ... with an index of document ends, as the disk format says.

    Shards end at borders, ascending, and at the stream's end. No token is an end-of-text token.
    """
    edges = [0, *borders, total]
    sizes = [last - first for first, last in pairwise(edges)]
    write_corpus(directory, np.arange(1, total + 1, dtype="<u4"), sizes)
    meta = json.loads((directory / "meta.json").read_text())
    meta |= {"doc_index": {"version": 1, "suffix": ".ends", "dtype": "int64"}, "chunk_documents": {}}
    for chunk, (first, last) in zip(meta["chunks"], pairwise(edges), strict=True):
        inside = [end - first for end in ends if first < end <= last]
        np.array(inside, "<i8").tofile(directory / chunk["file"].replace(".bin", ".ends"))
        meta["chunk_documents"][chunk["file"]] = len(inside)
    (directory / "meta.json").write_text(json.dumps(meta))
    return directory


def expected_fields(rows: Sequence[Row], shift: int = 1) -> dict[str, Any]:
    """Return a batch's labels, document_ids, position_ids, cu_seqlens and max_seqlen as lists."""
    width = len(rows[0]) - 1
    labels, ids, positions, borders = [], [], [], [0]
    for number, row in enumerate(rows):
        labels.append([_label(row, place, shift) for place in range(width)])
        ids.append([0])
        positions.append([0])
        for place in range(1, width):
            new = _document(row[place]) != _document(row[place - 1])
            ids[-1].append(ids[-1][-1] + new)
            positions[-1].append(0 if new else positions[-1][-1] + 1)
            borders += [number * width + place] * new
        borders.append((number + 1) * width)
    longest = max(last - first for first, last in pairwise(borders))
    return {
        "labels": labels, "document_ids": ids, "position_ids": positions, "cu_seqlens": borders,
        "max_seqlen": longest,
    }  # fmt: skip


def listed(batch: Any) -> dict[str, Any]:
    """Return a batch's fields as lists and numbers."""
    return {name: getattr(value, "tolist", lambda value=value: value)() for name, value in batch.items()}


def _document(place: Place | None) -> int:
    return -1 if place is None else place.document


def _label(row: Row, place: int, shift: int) -> int:
    """Return the next token of the same document; unshifted, the input, where that was to be foretold."""
    target = row[place + shift]
    source = row[place + shift - 1] if place + shift else target
    if target is None or source is None or source.document != target.document:
        return -100
    return target.token
