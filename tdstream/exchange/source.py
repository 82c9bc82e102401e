"""What is exported or converted: the token files at a path, and where their documents end."""

from __future__ import annotations

import os
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.document_ends import DocumentEnds, Ends
from tdstream.corpus.document_index import corpus_ends
from tdstream.corpus.meta import META_FILE, STAGING_DIR
from tdstream.formats import adopted, own
from tdstream.formats.description import DelimiterEnds, Description, FormatOptions
from tdstream.formats.ends import open_ends
from tdstream.formats.recognize import describe


def describe_path(path: str | os.PathLike[str], told: FormatOptions) -> Description:
    """Return what lies at a path: a corpus, or token files of another tool.

    Raises:
        CorpusNotFoundError: If there is nothing, or nothing that any format knows.
        CorpusError: If the files are damaged or unfinished, or of a variant that is not read.
        ConfigError: If the files do not tell what has to be known, or contradict what they are told to be.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"a corpus is named by its path, got {type(path).__name__}.")
    place = Path(path).absolute()
    if (place / META_FILE).exists():
        names = ("format", "dtype", "eos_token_id", "eos_first")
        given = [name for name in names if getattr(told, name) is not None]
        if given:
            raise ConfigError(
                f"{place} is a corpus with a {META_FILE}, which says what {' and '.join(given)} would. Leave "
                f"{'them' if len(given) > 1 else 'it'} out."
            )
        return adopted.describe(place) if adopted.is_adopted(place) else own.describe(place)
    if (place / STAGING_DIR).exists():
        raise CorpusError(
            f"{place} holds a preparation that has not finished ({STAGING_DIR}/ and no {META_FILE}). Wait "
            f"for it, or run it again."
        )
    return describe(place, told)


class TokenSource:
    """A corpus that is exported."""

    def __init__(self, description: Description, val: Description | None) -> None:
        self.description, self.val = description, val
        self.pieces = [(number, piece) for number, piece in enumerate(description.pieces) if piece.tokens]
        self.total = sum(piece.tokens for _, piece in self.pieces)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tokens."""
        return self.total * self.description.dtype.itemsize

    @cached_property
    def ends(self) -> DocumentEnds:
        """Where documents end."""
        return find_ends(self.description)

    @cached_property
    def stems(self) -> dict[int, str]:
        """Names of the files made of the pieces: as theirs, if those are distinct and in order."""
        stems = {number: Path(piece.path).stem for number, piece in self.pieces}
        if all(stem < later for stem, later in pairwise(stems.values())):
            return stems
        return {number: f"part_{number:06d}" for number in stems}

    @property
    def what(self) -> str:
        """The path, for messages."""
        return self.description.path

    @property
    def eos(self) -> int | None:
        """The token that marks documents; None if unknown."""
        rule = self.description.ends
        known: int | None = self.description.facts.get("eos_token_id")
        return rule.token_id if known is None and isinstance(rule, DelimiterEnds) else known

    @property
    def is_first(self) -> bool:
        """Whether that token stands first in each document."""
        rule = self.description.ends
        return isinstance(rule, DelimiterEnds) and rule.first

    def ends_in(self, number: int) -> Ends:
        """Return where documents end in a piece, the cut at its end included."""
        ends, piece = self.ends.in_part(number), self.description.pieces[number]
        tokens = piece.tokens
        if len(ends) and (ends[-1] > tokens or ends[0] < 1 or (np.diff(ends) <= 0).any()):
            raise CorpusError(
                f"{self.what} has a damaged index: the ends of documents in {Path(piece.path).name} do not "
                f"ascend from 1 to its {tokens:,} tokens. Run tdstream verify {self.what}."
            )
        return np.append(ends, tokens) if not len(ends) or ends[-1] < tokens else ends

    def count_cut(self) -> int:
        """Return how many documents cross from one piece to another."""
        numbers = [number for number, _ in self.pieces[:-1]]
        return sum(1 for number in numbers if len(self.ends_in(number)) > len(self.ends.in_part(number)))


def find_ends(description: Description) -> DocumentEnds:
    """Return where documents end; a scan for the end-of-text token is kept, as for reading.

    Raises ConfigError if nothing tells, and CorpusError if an index is damaged.
    """
    if description.format != own.NAME:
        return open_ends(description)
    offsets = list_offsets(description)
    files = [Path(piece.path).name for piece in description.pieces]
    return corpus_ends(Path(description.path), files, offsets, description.dtype)


def list_offsets(description: Description) -> NDArray[np.int64]:
    """Return the first token of each piece in the stream, and the number of tokens; int64 [pieces + 1]."""
    offsets: NDArray[np.int64] = np.cumsum(
        [0, *(piece.tokens for piece in description.pieces)], dtype=np.int64
    )
    return offsets
