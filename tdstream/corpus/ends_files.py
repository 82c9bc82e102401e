"""Files of document ends, one for each shard: places in the shard, int64, mapped when they are needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.doc_index import ENDS_DTYPE
from tdstream.corpus.meta import META_FILE
from tdstream.errors import CorpusError, CorpusNotFoundError


@dataclass(frozen=True, slots=True)
class EndsFiles:
    """Loads the ends of a shard from a file that lies in a directory."""

    directory: Path
    names: Sequence[str]
    """File names, by shard."""
    counts: NDArray[np.int64]
    """Ends in each file."""

    def __call__(self, shard: int) -> NDArray[np.int64]:
        """Return the ends, int64 [counts[shard]], memory-mapped and read-only.

        Raises:
            CorpusError: If the file has changed or gone.
        """
        path, count = self.directory / self.names[shard], int(self.counts[shard])
        try:
            ends = np.memmap(path, ENDS_DTYPE, mode="r")
        except (OSError, ValueError) as error:
            raise CorpusError(f"{path} cannot be read any more: {error}. Was it deleted?") from error
        if len(ends) != count:
            raise CorpusError(f"{path} has {len(ends):,} ends of documents, {count:,} were expected.")
        return np.asarray(ends)


def check_sizes(directory: Path, names: Sequence[str], counts: NDArray[np.int64]) -> None:
    """Compare the sizes of a prepared index's files with what they promise.

    Args:
        directory: The corpus.
        names: Their names.
        counts: How many ends each has.

    Raises:
        CorpusNotFoundError: If a file is missing.
        CorpusError: If one is shorter or longer.
    """
    sizes = file_sizes(directory)
    for name, count in zip(names, counts.tolist(), strict=True):
        if name not in sizes:
            raise CorpusNotFoundError(
                f"{directory / name} is missing; {META_FILE} promises {count:,} ends of documents in it."
            )
        if sizes[name] != count * ENDS_DTYPE.itemsize:
            raise CorpusError(
                f"{directory / name} has {sizes[name]:,} bytes, {META_FILE} promises {count:,} ends of "
                f"documents. It was probably cut while copying; copy it again."
            )


def file_sizes(directory: Path) -> dict[str, int]:
    """Return the size of each file in a directory; nothing where there is no such directory."""
    try:
        with os.scandir(directory) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError:
        return {}
