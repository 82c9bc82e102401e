"""How samples are cut: a spec of them, and the windows of one document.

Full windows begin every `stride` tokens; the rest after them may be padded.

A document of n tokens, including its end-of-text token, has

- no window, if it has fewer than max(min_tail, 1) tokens before the end-of-text token;
- one padded window, if n < seq_len;
- else full windows of seq_len tokens at 0, stride, 2 * stride, ...; the rest after the last full window is
  a padded window if it has at least max(min_tail, 1) tokens, and is dropped if it has fewer.

    seq_len = stride = 4, min_tail = 2:   9 tokens: windows 0-3, 4-7; token 8 is dropped
                                         10 tokens: windows 0-3, 4-7, 8-9 (padded)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tdstream.core.checks import check_bool, check_int
from tdstream.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Windows:
    """Some windows, one entry each."""

    starts: NDArray[np.int64]
    """Shape [n]: the place of the first token in the document."""
    lengths: NDArray[np.int32]
    """Shape [n]: tokens of the window; seq_len + 1, with the last label, if another window follows."""
    overlaps: NDArray[np.int32]
    """Shape [n]: how many of its first labels the previous window also has."""
    stops: NDArray[np.bool_]
    """Shape [n]: whether it is the last of its document."""

    def part(self, first: int, last: int) -> Windows:
        """Return windows first .. last - 1."""
        own = slice(first, last)
        return Windows(self.starts[own], self.lengths[own], self.overlaps[own], self.stops[own])


@dataclass(frozen=True, slots=True)
class DocumentCut:
    """How documents are cut into windows."""

    seq_len: int
    """T, tokens of a full window."""
    stride: int
    """Tokens from one full window's start to the next one's, 1 to seq_len."""
    min_tail: int
    """The fewest tokens of a short document, or of the rest of a long one, that get a window."""

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.seq_len:
            raise ConfigError(
                f'stride must be 1 to seq_len = {self.seq_len} with cut="document", got {self.stride}.'
            )
        if not 0 <= self.min_tail <= self.seq_len:
            raise ConfigError(f"min_tail_len must be 0 to seq_len = {self.seq_len}, got {self.min_tail}.")

    @classmethod
    def of(cls, seq_len: int, stride: int | None, min_tail_len: int | None) -> DocumentCut:
        """Return a cut; None means stride = seq_len, min_tail_len = seq_len // 4."""
        min_tail = seq_len // 4 if min_tail_len is None else min_tail_len
        return cls(seq_len, seq_len if stride is None else stride, min_tail)

    def is_kept(self, text_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether documents have a window, by their tokens without the end-of-text token, [n]."""
        return np.asarray(text_tokens) >= max(self.min_tail, 1)

    def count(self, num_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the windows of kept documents, by their tokens with the end-of-text token, [n]."""
        num_tokens = np.asarray(num_tokens, np.int64)
        full = self._full(num_tokens)
        rest = num_tokens - self._covered(full)
        return full + (rest >= np.where(full > 0, max(self.min_tail, 1), 1))

    def count_tokens(self, num_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        """Count the tokens that the windows of kept documents cover, [n]."""
        num_tokens = np.asarray(num_tokens, np.int64)
        full = self._full(num_tokens)
        return np.where(self.count(num_tokens) > full, num_tokens, self._covered(full))

    def windows(self, num_tokens: NDArray[np.int64], numbers: NDArray[np.int64]) -> Windows:
        """Return windows, by the tokens of their documents and their numbers in these, both [n]."""
        num_tokens, numbers = np.asarray(num_tokens, np.int64), np.asarray(numbers, np.int64)
        full, last = self._full(num_tokens), self.count(num_tokens) - 1
        is_full = numbers < full
        starts = np.where(is_full, numbers * self.stride, self._covered(full))
        rest = num_tokens - starts
        stops = numbers == last
        lengths = np.where(stops, np.minimum(rest, self.seq_len), self.seq_len + 1)
        overlaps = np.where(is_full & (numbers > 0), self.seq_len - self.stride, 0)
        return Windows(starts, lengths.astype(np.int32), overlaps.astype(np.int32), stops)

    def _full(self, num_tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.maximum((num_tokens - self.seq_len) // self.stride + 1, 0)

    def _covered(self, full: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens that full windows cover."""
        return np.where(full > 0, (full - 1) * self.stride + self.seq_len, 0)


def count_samples(num_tokens: int, seq_len: int, stride: int | None = None) -> int:
    """Count the samples of seq_len + 1 tokens in a stream, one at every multiple of the stride."""
    return 0 if num_tokens <= seq_len else (num_tokens - seq_len - 1) // (stride or seq_len + 1) + 1


CUTS = ("stream", "document", "pack")


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleSpec:
    """How samples are cut from a source and ordered; the fields are `build`'s arguments."""

    seq_len: int
    stride: int | None = None
    cut: str = "stream"
    min_tail_len: int | None = None
    pad_id: int | None = None
    documents: bool = False
    samples: slice | None = None
    shuffle: bool | str = False
    seed: int = 42
    order: str = "feistel"
    block_samples: int = 1024

    def __post_init__(self) -> None:
        for name, least in (("seq_len", 1), ("stride", 1), ("min_tail_len", 0)):
            value = getattr(self, name)
            if value is not None or name == "seq_len":
                object.__setattr__(self, name, check_int(name, value, at_least=least))  # the class is frozen
        check_bool("documents", self.documents)
        if self.cut not in CUTS:
            raise ConfigError(f'cut must be "stream", "document" or "pack", got {self.cut!r}.')
        if self.stride is not None and self.cut == "pack":
            raise ConfigError('stride has no meaning with cut="pack": its rows never overlap. Leave it out.')
        if self.min_tail_len is not None and self.cut != "document":
            raise ConfigError(f'min_tail_len belongs to cut="document", not to cut="{self.cut}".')

    @property
    def marks_ends(self) -> bool:
        """Whether rows mark the ends of documents."""
        return self.documents or self.cut == "pack"
