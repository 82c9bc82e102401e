"""What flows between a stream's nodes: blocks of records, and samples cut from their tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tdstream.rows import Tokens
from tdstream.text.records import Place


@dataclass(slots=True)
class Block:
    """Some records of a stream; if a sample of it is still to be served, the stream can go on from here."""

    place: Place
    """Where they begin in the source."""
    tokens: int
    """Tokens of this stream's epoch that lie before."""
    samples: int
    """Samples that were cut before."""
    left_out: int = 0
    """Documents, or ends of documents, that were too short for a sample, before."""
    waiting: int = 0
    """Samples that begin in it and have not been served, the one that is being put together included."""


@dataclass(slots=True)
class Sample:
    """One row, and what its place in the order depends on."""

    number: int
    """Samples of this stream's epoch before it."""
    record: int
    """The record of this stream in which it ends."""
    block: Block
    """The block in which it begins."""
    tokens: Tokens
    """Shape [seq_len + 1]."""
    length: int
    """How many of them are tokens, not padding."""
    overlap: int
    """How many of its first labels the sample before it has already."""
    stops: bool
    """Whether its document ends with it; not known, and False, where samples cross documents."""
