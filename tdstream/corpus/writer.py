"""Cut a stream of token ids into shards of one size, and make them a corpus when the last one is written."""

from __future__ import annotations

import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.meta import DTYPES, FORMAT_VERSION, Chunk, CorpusMeta, chunk_name
from tdstream.corpus.output import explain_os_errors
from tdstream.corpus.staging import Staging
from tdstream.errors import ConfigError, CorpusError


class CorpusWriter:
    """Writes one corpus: `append` token ids, then `finish`.

    Used in a `with` statement; leaving it without `finish` removes all that was written, and whatever lay
    in the directory before is as it was.
    """

    def __init__(self, output: Path, plan: CorpusMeta, *, overwrite: bool = False) -> None:
        """Claim the output directory.

        Args:
            output: Where the corpus is to lie; created where it does not exist.
            plan: What is known beforehand; its dtype and tokens_per_chunk say how to write.
            overwrite: Whether an older corpus may be replaced.

        Raises:
            ConfigError: If the plan cannot be followed.
            OutputError: If the directory cannot be used.
        """
        if plan.tokens_per_chunk < 1:
            raise ConfigError(f"tokens_per_chunk must be at least 1, got {plan.tokens_per_chunk}.")
        if plan.dtype not in DTYPES:
            raise ConfigError(f"dtype must be one of {', '.join(DTYPES)}, got {plan.dtype!r}.")
        self._plan = plan
        self._dtype = DTYPES[plan.dtype]
        self._chunks: list[Chunk] = []
        self._checksums: dict[str, str] = {}
        self._open_chunk: _ChunkFile | None = None
        self._staging = Staging(output, overwrite=overwrite)

    @property
    def num_tokens(self) -> int:
        """Tokens appended so far."""
        begun = self._open_chunk.num_tokens if self._open_chunk else 0
        return sum(chunk.tokens for chunk in self._chunks) + begun

    def append(self, token_ids: NDArray[Any]) -> None:
        """Write token ids behind those already written, cutting shards wherever they are full.

        Args:
            token_ids: Integers, shape [num_tokens].

        Raises:
            CorpusError: If an id is negative or does not fit the storage type; none of them is written then.
            OutputError: If there is no room left, or the place cannot be written.
        """
        stored = self._stored(token_ids)
        with explain_os_errors(self._staging.output):
            start = 0
            while start < len(stored):
                chunk = self._chunk()
                stop = start + self._plan.tokens_per_chunk - chunk.num_tokens
                chunk.write(stored[start:stop])
                start = stop
                if chunk.num_tokens == self._plan.tokens_per_chunk:
                    self._close_chunk()

    def finish(self, *, num_documents: int) -> CorpusMeta:
        """Complete the corpus and let readers see it.

        Args:
            num_documents: Documents that the appended tokens came from.

        Returns:
            The content of its meta.json.

        Raises:
            CorpusError: If nothing was appended: a corpus holds at least one token.
            OutputError: If it cannot be completed.
        """
        with explain_os_errors(self._staging.output):
            self._close_chunk()
        if not self._chunks:
            raise CorpusError("No token was written; a corpus holds at least one.")
        meta = replace(
            self._plan,
            chunks=tuple(self._chunks),
            chunk_checksums=self._checksums,
            num_documents=num_documents,
            created_at_unix=int(time.time()),
            format_version=FORMAT_VERSION,
        )
        self._staging.publish(meta)
        return meta

    def __enter__(self) -> CorpusWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._open_chunk is not None:
            self._open_chunk.abandon()
        self._staging.discard()

    def _stored(self, token_ids: NDArray[Any]) -> NDArray[Any]:
        """Return the ids in the storage type, after checking that each survives the change."""
        if token_ids.dtype.kind not in "iu":
            raise CorpusError(f"Token ids must be integers, got an array of {token_ids.dtype}.")
        if len(token_ids) == 0:
            return token_ids.astype(self._dtype)
        lowest, highest = int(token_ids.min()), int(token_ids.max())
        limit = int(np.iinfo(self._dtype).max)
        if lowest < 0 or highest > limit:
            raise CorpusError(
                f"Token id {lowest if lowest < 0 else highest:,} does not fit {self._plan.dtype} "
                f"(0 to {limit:,}), the type for a vocabulary of {self._plan.vocab_size:,}. "
                f"The tokenizer gives ids beyond the size that it states; use one that agrees with itself."
            )
        return token_ids.astype(self._dtype, copy=False)

    def _chunk(self) -> _ChunkFile:
        if self._open_chunk is None:
            self._open_chunk = _ChunkFile(self._staging.directory / chunk_name(len(self._chunks)))
        return self._open_chunk

    def _close_chunk(self) -> None:
        if self._open_chunk is not None:
            chunk = self._open_chunk
            chunk.commit()
            self._chunks.append(Chunk(chunk.path.name, chunk.num_tokens))
            self._checksums[chunk.path.name] = chunk.checksum
            self._open_chunk = None


class _ChunkFile:
    """One shard that is being written under a temporary name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_tokens = 0
        self._temporary = path.with_name(path.name + ".tmp")
        # Unbuffered: a buffer that did not reach a full disk would be written once more when it is closed.
        self._file = self._temporary.open("wb", buffering=0)
        self._hash = hashlib.sha256()

    @property
    def checksum(self) -> str:
        """SHA-256 of the bytes written so far, as meta.json spells it."""
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, stored: NDArray[Any]) -> None:
        """Write ids that are already in the storage type, shape [num_tokens]."""
        content = np.ascontiguousarray(stored).data.cast("B")
        self._hash.update(content)
        while content:
            content = content[self._file.write(content) :]
        self.num_tokens += len(stored)

    def commit(self) -> None:
        """Make the bytes durable and give them their name."""
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._temporary, self.path)

    def abandon(self) -> None:
        """Close the file; its directory is about to be removed."""
        self._file.close()
