"""Find the ends of documents of a corpus that has no index of them: by its end-of-text tokens, once.

What is found is kept in one file for each shard, named after the shard, its size, its time of change and its
checksum: a shard that changes has another name, and is read again. Raw little-endian int64 places in the
shard, as in a prepared index; ending in .eos, and in a directory of its own, so that it is taken for none.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from tdstream.corpus.derived import places, taking_turns, whole_file, writable_place
from tdstream.corpus.doc_index import ENDS_DTYPE
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.ends_files import EndsFiles, file_sizes
from tdstream.corpus.tokens import PIECE_BYTES, as_tokens, byte_pieces

logger = logging.getLogger(__name__)

_SUFFIX = ".eos"
_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """What decides which ends are found."""

    directory: Path
    files: Sequence[str]
    """The shards, in order."""
    dtype: np.dtype[Any]
    eos_token_id: int
    checksums: Mapping[str, str]
    """Of the shards, as far as they are known."""

    def names(self) -> list[str]:
        """Return the name of each shard's file of ends."""
        return [f"{Path(file).stem}.{self._fingerprint(file)}{_SUFFIX}" for file in self.files]

    def _fingerprint(self, file: str) -> str:
        status = os.stat(self.directory / file)
        told = (
            _VERSION, file, status.st_size, status.st_mtime_ns, self.checksums.get(file, ""),
            self.dtype.name, self.eos_token_id,
        )  # fmt: skip
        return hashlib.sha256(repr(told).encode()).hexdigest()[:16]


def scanned_ends(scan: Scan, offsets: NDArray[np.int64]) -> DocumentEnds:
    """Return the ends of a corpus's documents, from an earlier scan, or from one that is made now.

    Args:
        scan: The corpus.
        offsets: int64 [num_shards + 1], where the shards begin in the stream of tokens.

    Raises:
        OutputError: If what is found can be kept nowhere.
    """
    names = scan.names()
    place = next((place for place in places(scan.directory) if _has_all(place, names)), None)
    if place is None:
        place = writable_place(scan.directory)
        with taking_turns(place, "scan"):
            _make_missing(scan, place, names)
    sizes = file_sizes(place)
    counts = np.array([sizes[name] // ENDS_DTYPE.itemsize for name in names], np.int64)
    key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, EndsFiles(place, names, counts), key=key)


def _make_missing(scan: Scan, place: Path, names: Sequence[str]) -> None:
    """Read the shards whose ends are not known yet; what is left of shards as they were is removed."""
    there = file_sizes(place)
    missing = [(file, name) for file, name in zip(scan.files, names, strict=True) if name not in there]
    if not missing:
        return  # another process has made them meanwhile
    logger.info("Looking for the ends of documents in %d shards of %s.", len(missing), scan.directory)
    total = sum(os.path.getsize(scan.directory / file) for file, _ in missing)
    with tqdm(
        total=total, unit="B", unit_scale=True, desc="ends of documents", disable=None, leave=False
    ) as bar:
        for file, name in missing:
            _scan_shard(scan, file, place / name, bar)
            _remove_older(place, there, Path(file).stem, name)


def _scan_shard(scan: Scan, file: str, target: Path, bar: Any) -> None:
    done = 0
    with whole_file(target) as out:
        for piece in byte_pieces(scan.directory / file, PIECE_BYTES):
            tokens = as_tokens(piece, scan.dtype)
            ends = np.flatnonzero(tokens == scan.eos_token_id) + (done + 1)
            out.write(ends.astype(ENDS_DTYPE).tobytes())
            done += len(tokens)
            bar.update(len(piece))


def _remove_older(place: Path, there: Mapping[str, int], stem: str, name: str) -> None:
    for other in there:
        if other.startswith(f"{stem}.") and other.endswith(_SUFFIX) and other != name:
            (place / other).unlink(missing_ok=True)


def _has_all(place: Path, names: Sequence[str]) -> bool:
    return set(names) <= file_sizes(place).keys()
