"""Read every byte of a corpus once, and gather what the checks of its contents need."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.corpus.doc_index import ends_name
from tdstream.corpus.documents import DocumentScan
from tdstream.corpus.index_checks import EndsCheck
from tdstream.corpus.meta import DTYPES, Chunk, CorpusMeta
from tdstream.corpus.report import Findings
from tdstream.corpus.tokens import Tokens, as_tokens, byte_pieces

ALGORITHM = "sha256:"


@dataclass(slots=True)
class BadIds:
    """Ids of one shard that no vocabulary of that size has."""

    count: int = 0
    first: int = -1
    """Place of the first one in the shard."""
    highest: int = -1

    def add(self, tokens: Tokens, begin: int, limit: int) -> None:
        """Take note of the ids of a piece that are not below the limit.

        Args:
            tokens: The piece, shape [num_tokens].
            begin: Its place in the shard.
            limit: The size of the vocabulary.
        """
        highest = int(tokens.max(initial=0))
        if highest < limit:
            return
        places = np.flatnonzero(tokens >= limit)
        self.first = begin + int(places[0]) if self.count == 0 else self.first
        self.count += len(places)
        self.highest = max(self.highest, highest)


@dataclass(slots=True)
class Contents:
    """What reading a corpus gave."""

    documents: DocumentScan | None
    """None where the end-of-text id is unknown."""
    digests: dict[str, str] = field(default_factory=dict)
    """Shard -> its checksum, as meta.json spells it; of the shards that can be read."""
    bad_ids: dict[str, BadIds] = field(default_factory=dict)
    last_token: int | None = None
    """The last token of the corpus; None if the last shard is damaged."""
    ends: dict[str, EndsCheck] = field(default_factory=dict)
    """Shard -> what was seen of its index of document ends; of the shards that have one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContentsReader:
    """Reads all shards of a corpus, those of a wrong size too."""

    directory: Path
    meta: CorpusMeta
    sizes: dict[str, int]
    damaged: set[str]
    """Shards whose size is wrong: their tokens stand at no certain place. Unreadable ones are added."""
    indexed: frozenset[str]
    """Shards with an index of document ends that has the right size."""
    vocab_size: int
    """Ids are to be below; 0 where unknown."""
    piece_bytes: int
    advance: Callable[[int], object] | None
    """Told the number of bytes after each piece."""

    def read(self, documents: DocumentScan | None, findings: Findings) -> Contents:
        """Read the corpus.

        Args:
            documents: Fed with the tokens, and told where some are missing.
            findings: Told about shards that cannot be read.
        """
        contents = Contents(documents)
        for chunk in self.meta.chunks:
            begin = documents.position if documents else 0
            try:
                if chunk.file in self.sizes:
                    self._read_chunk(chunk, contents)
            except OSError as error:
                self.damaged.add(chunk.file)
                findings.fault("unreadable", chunk.file, f"cannot be read: {error.strerror or error}.")
            if documents and chunk.file in self.damaged:
                documents.skip(begin + chunk.tokens - documents.position)
        if self.meta.chunks and self.meta.chunks[-1].file in self.damaged:
            contents.last_token = None
        return contents

    def _read_chunk(self, chunk: Chunk, contents: Contents) -> None:
        digest = hashlib.sha256()
        bad, place = BadIds(), 0
        ends = self._index_of(chunk, contents)
        dtype: np.dtype[Any] | None = DTYPES.get(self.meta.dtype)
        for piece in byte_pieces(self.directory / chunk.file, self.piece_bytes):
            if chunk.file in self.meta.chunk_checksums:
                digest.update(piece.data)
            if dtype is not None:
                tokens = as_tokens(piece, dtype)
                self._look_at(tokens, place, bad, contents, counted=chunk.file not in self.damaged)
                if ends is not None and self.meta.eos_token_id is not None:
                    ends.feed(tokens, place, self.meta.eos_token_id)
                place += len(tokens)
            if self.advance is not None:
                self.advance(len(piece))
        contents.digests[chunk.file] = ALGORITHM + digest.hexdigest()
        if bad.count:
            contents.bad_ids[chunk.file] = bad

    def _index_of(self, chunk: Chunk, contents: Contents) -> EndsCheck | None:
        """Open the index of a shard; None if there is none to compare its tokens with."""
        if chunk.file not in self.indexed:
            return None
        check = EndsCheck.of(self.directory / ends_name(chunk.file), chunk.tokens)
        contents.ends[chunk.file] = check
        return None if chunk.file in self.damaged else check

    def _look_at(self, tokens: Tokens, place: int, bad: BadIds, contents: Contents, *, counted: bool) -> None:
        if self.vocab_size > 0:
            bad.add(tokens, place, self.vocab_size)
        if len(tokens):
            contents.last_token = int(tokens[-1])
        if counted and contents.documents is not None:
            contents.documents.feed(tokens)
