"""The ends of a corpus's documents: from its index, or else from a scan for its end-of-text tokens.

A scan is kept in one file for each shard, named after the shard, its size, its time of change and its
checksum: a shard that changes is scanned again. The file holds raw little-endian int64 places in the shard,
as an index does, but its suffix is .eos.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError
from tdstream.corpus.derived import find_writable_place, list_places, taking_turns, whole_file
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.mapped_array import check_size, list_sizes, map_array
from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta, read_meta
from tdstream.corpus.shard_reader import PIECE_BYTES, as_tokens, byte_pieces

ENDS_SUFFIX = str(DOC_INDEX["suffix"])
ENDS_DTYPE = np.dtype("<i8")
"""Token positions are int64 everywhere, so that they are added to a shard's offset as they are."""
_ENDS = "ends of documents"
_SUFFIX = ".eos"
_VERSION = 1

logger = logging.getLogger(__name__)


def ends_name(chunk_file: str) -> str:
    """Return the file name of a shard's index: chunk_000000.bin -> chunk_000000.ends."""
    return Path(chunk_file).stem + ENDS_SUFFIX


def has_doc_index(meta: CorpusMeta) -> bool:
    """Return whether each shard of a corpus has an index of a known version."""
    known = meta.doc_index.get("version") == DOC_INDEX["version"]
    return known and all(chunk.file in meta.chunk_documents for chunk in meta.chunks)


def read_ends(directory: Path, meta: CorpusMeta, chunk_file: str) -> NDArray[np.int64]:
    """Return the index of a shard, int64 [documents], mapped: the ends of the documents that end in it.

    Raises CorpusNotFoundError or CorpusError if the file is missing or has another size than promised.
    """
    path, documents = directory / ends_name(chunk_file), meta.chunk_documents[chunk_file]
    size = path.stat().st_size if path.exists() else None
    check_size(path, size, documents, ENDS_DTYPE, _ENDS)
    ends: NDArray[np.int64] = map_array(path, ENDS_DTYPE, documents, _ENDS)
    return ends


def file_names(meta: CorpusMeta, chunk_files: Iterable[str] | None = None) -> set[str]:
    """Return the names of the files of a corpus, or of some of its shards, without meta.json."""
    files = {chunk.file for chunk in meta.chunks} if chunk_files is None else set(chunk_files)
    return files | ({ends_name(file) for file in files} if meta.doc_index else set())


def _map_ends(
    directory: Path, names: Sequence[str], counts: NDArray[np.int64], shard: int
) -> NDArray[np.int64]:
    """Map the ends of a shard, by the files' names and the ends in each."""
    ends: NDArray[np.int64] = map_array(directory / names[shard], ENDS_DTYPE, int(counts[shard]), _ENDS)
    return ends


@dataclass(frozen=True, kw_only=True, slots=True)
class Scan:
    """The corpus to scan: all that decides which ends are found."""

    directory: Path
    files: Sequence[str]
    """The shards, in order."""
    dtype: np.dtype[Any]
    eos_token_id: int
    checksums: Mapping[str, str]
    """Of the shards, where they are known."""

    def names(self) -> list[str]:
        """Return the name of each shard's file of ends."""
        return [f"{Path(file).stem}.{self._fingerprint(file)}{_SUFFIX}" for file in self.files]

    def _fingerprint(self, file: str) -> str:
        status = os.stat(self.directory / file)
        facts = (
            _VERSION, file, status.st_size, status.st_mtime_ns, self.checksums.get(file, ""),
            self.dtype.name, self.eos_token_id,
        )  # fmt: skip
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def scan_ends(scan: Scan, offsets: NDArray[np.int64]) -> DocumentEnds:
    """Return the ends from an earlier scan, or scan now; raise OutputError if the result cannot be stored."""
    names = scan.names()
    place = next((place for place in list_places(scan.directory) if _has_all(place, names)), None)
    if place is None:
        place = find_writable_place(scan.directory)
        with taking_turns(place, "scan"):
            _make_missing(scan, place, names)
    sizes = _list_sizes(place)
    counts = np.array([sizes[name] // ENDS_DTYPE.itemsize for name in names], np.int64)
    key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, partial(_map_ends, place, names, counts), key=key)


def _make_missing(scan: Scan, place: Path, names: Sequence[str]) -> None:
    """Scan the shards that have not been scanned; remove the scans of their earlier versions."""
    there = _list_sizes(place)
    missing = [(file, name) for file, name in zip(scan.files, names, strict=True) if name not in there]
    if not missing:
        return  # another process was quicker
    from tqdm import tqdm  # noqa: PLC0415 - the command line refuses flags without it

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
    return set(names) <= _list_sizes(place).keys()


def _list_sizes(place: Path) -> dict[str, int]:
    try:
        return list_sizes(place)
    except OSError:  # there is no such directory yet
        return {}


def corpus_ends(
    directory: Path, files: Sequence[str], offsets: NDArray[np.int64], dtype: np.dtype[Any]
) -> DocumentEnds:
    """Return the ends of a corpus's documents, by its shards' names, offsets and storage type.

    Raises ConfigError if there is neither an index nor a known end-of-text token.
    """
    meta = _meta(directory)
    if meta is not None and has_doc_index(meta):
        return _indexed(directory, meta, offsets)
    if meta is None:
        raise ConfigError(
            f"{directory} has no {META_FILE}, so the ends of its documents are unknown. Prepare the corpus, "
            f"or read it as one stream: without documents=True, and with no cut but the default."
        )
    if meta.eos_token_id is None:
        raise ConfigError(
            f"{directory}: {META_FILE} names no eos_token_id, so the ends of its documents are unknown. "
            f"Add it there, or prepare the corpus again."
        )
    scan = Scan(
        directory=directory, files=files, dtype=dtype, eos_token_id=meta.eos_token_id,
        checksums=meta.chunk_checksums,
    )  # fmt: skip
    return scan_ends(scan, offsets)


def _indexed(directory: Path, meta: CorpusMeta, offsets: NDArray[np.int64]) -> DocumentEnds:
    """Return the ends in the index."""
    files = [chunk.file for chunk in meta.chunks]
    counts = np.array([meta.chunk_documents[file] for file in files], np.int64)
    names = [ends_name(file) for file in files]
    sizes = list_sizes(directory)
    for name, count in zip(names, counts.tolist(), strict=True):
        if sizes.get(name) != count * ENDS_DTYPE.itemsize:
            check_size(directory / name, sizes.get(name), count, ENDS_DTYPE, _ENDS)
    versions = [
        f"{file} {meta.doc_index_checksums.get(file) or (directory / name).stat().st_mtime_ns}"
        for file, name in zip(files, names, strict=True)
    ]
    key = hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, partial(_map_ends, directory, names, counts), key=key)


def find_pad_id(directory: Path) -> int:
    """Return the id for padding: the corpus's end-of-text token, or 0 where it is unknown."""
    meta = _meta(directory)
    return 0 if meta is None or meta.eos_token_id is None else meta.eos_token_id


def _meta(directory: Path) -> CorpusMeta | None:
    path = directory / META_FILE
    return read_meta(path) if path.exists() else None
