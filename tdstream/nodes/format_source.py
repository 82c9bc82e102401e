"""Token files of another format as one token stream; and the source for a path of any format."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import ConfigError
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.meta import META_FILE, STAGING_DIR
from tdstream.corpus.shard_reader import PieceMaps
from tdstream.formats import raw
from tdstream.formats.description import NOTHING_TOLD, Description, FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe
from tdstream.nodes.shard_source import ShardSource


class FormatSource(ShardSource):
    """Token files that another tool wrote, read where they lie.

    Attributes are those of ShardSource, with a piece of a file in the place of a shard.

    Args:
        description: What the files are.
    """

    def __init__(self, description: Description) -> None:
        self.description, self.what = description, description.path
        self.directory = Path(description.path)
        pieces = description.pieces
        common = os.path.commonpath([os.path.dirname(piece.path) for piece in pieces])
        self.files = [os.path.relpath(piece.path, common) for piece in pieces]
        self.offsets = np.cumsum([0, *(piece.tokens for piece in pieces)], dtype=np.int64)
        self.total_tokens, self.dtype = int(self.offsets[-1]), description.dtype
        facts = description.facts
        self.tokenizer_fingerprint = ""
        self.vocab_size, self.eos_token_id = facts.get("vocab_size"), facts.get("eos_token_id")
        self.tokenizer_name_or_path = facts.get("tokenizer_name_or_path", "")
        self._identity = self._describe_format(description)

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}({self.description.format}, {len(self.files):,} pieces, {self.total_tokens:,} tokens)"

    def open(self) -> PieceMaps:
        """Return the token stream."""
        paths, firsts, _, sizes = zip(*self.description.pieces, strict=True)
        return PieceMaps(paths, firsts, sizes, self.offsets, self.dtype)

    def ends(self) -> DocumentEnds:
        """Return where documents end."""
        return open_ends(self.description)

    @property
    def pad_id(self) -> int:
        """The id for padding: the token that marks documents, or 0 if that is unknown."""
        return self.eos_token_id or 0

    def _describe_format(self, description: Description) -> dict[str, Any]:
        """Return the identity: that of a corpus, with the format, and the digest of its index as content."""
        identity = self._describe(description.digest)
        if description.format != raw.NAME:
            identity["format"] = description.format
        return identity


def open_source(path: str | Path, told: FormatOptions = NOTHING_TOLD) -> ShardSource:
    """Return the source for a corpus, or for token files of another format, which is recognized.

    Args:
        path: A corpus directory; or a directory, a file, a prefix P of P.bin and P.idx, or a pattern.
        told: What the caller says of the files.

    Raises:
        CorpusNotFoundError, CorpusError, ConfigError: As ShardSource, and if no format knows the files.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"a corpus is named by its path, got {type(path).__name__}.")
    place = Path(path)
    if not (place / META_FILE).exists() and not (place / STAGING_DIR).exists():
        return FormatSource(describe(path, told))
    given = [name for name in ("format", "eos_token_id", "eos_first") if getattr(told, name) is not None]
    if given and (place / META_FILE).exists():
        raise ConfigError(
            f"{place} is a corpus with a {META_FILE}, which says what {' and '.join(given)} would. Leave "
            f"{'them' if len(given) > 1 else 'it'} out."
        )
    return ShardSource(path, dtype=told.dtype)
