"""Where the documents of a corpus end: from its index, and where it has none, from its end-of-text tokens."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError
from tdstream.corpus.derived import places, taking_turns, whole_file, writable_place
from tdstream.corpus.document_ends import DocumentEnds
from tdstream.corpus.mapped_array import check_size, list_sizes, map_array
from tdstream.corpus.meta import DOC_INDEX, META_FILE, CorpusMeta, read_meta
from tdstream.corpus.shard_reader import PIECE_BYTES, as_tokens, byte_pieces

ENDS_SUFFIX = str(DOC_INDEX["suffix"])
ENDS_DTYPE = np.dtype("<i8")
"""Token positions are int64 everywhere: none has to be converted before it is added to a shard's offset."""
_ENDS = "ends of documents"


def ends_name(chunk_file: str) -> str:
    """Return the file name of a shard's index: chunk_000000.bin -> chunk_000000.ends.

    Args:
        chunk_file: The file name of the shard.
    """
    return Path(chunk_file).stem + ENDS_SUFFIX


def has_doc_index(meta: CorpusMeta) -> bool:
    """Return whether each shard of a corpus has an index of a version that can be read.

    Args:
        meta: What its meta.json says.
    """
    known = meta.doc_index.get("version") == DOC_INDEX["version"]
    return known and all(chunk.file in meta.chunk_documents for chunk in meta.chunks)


def read_ends(directory: Path, meta: CorpusMeta, chunk_file: str) -> NDArray[np.int64]:
    """Return where the documents that end in a shard do so, memory-mapped and read-only.

    Args:
        directory: The corpus directory.
        meta: What its meta.json says; it has an index.
        chunk_file: The file name of the shard.

    Returns:
        int64 [documents], ascending: places in the shard, each just behind a document's end-of-text token.
        A document that ends in a later shard is not among them; there may be none.

    Raises:
        CorpusNotFoundError: If the index is missing.
        CorpusError: If it is shorter or longer than promised.
    """
    path, documents = directory / ends_name(chunk_file), meta.chunk_documents[chunk_file]
    size = path.stat().st_size if path.exists() else None
    check_size(path, size, documents, ENDS_DTYPE, _ENDS)
    ends: NDArray[np.int64] = map_array(path, ENDS_DTYPE, documents, _ENDS)
    return ends


def file_names(meta: CorpusMeta, chunk_files: Iterable[str] | None = None) -> set[str]:
    """Return the names of the files that a corpus consists of, but for meta.json.

    Args:
        meta: What its meta.json says.
        chunk_files: Of these shards only.
    """
    files = {chunk.file for chunk in meta.chunks} if chunk_files is None else set(chunk_files)
    return files | ({ends_name(file) for file in files} if meta.doc_index else set())


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
        count = int(self.counts[shard])
        ends: NDArray[np.int64] = map_array(self.directory / self.names[shard], ENDS_DTYPE, count, _ENDS)
        return ends


# Find the ends of documents of a corpus that has no index of them: by its end-of-text tokens, once.
#
# What is found is kept in one file for each shard, named after the shard, its size, its time of change and
# its checksum: a shard that changes has another name, and is read again. Raw little-endian int64 places in
# the shard, as in a prepared index; ending in .eos, and in a directory of its own, so that it is taken for
# none.

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
    sizes = _list_sizes(place)
    counts = np.array([sizes[name] // ENDS_DTYPE.itemsize for name in names], np.int64)
    key = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, EndsFiles(place, names, counts), key=key)


def _make_missing(scan: Scan, place: Path, names: Sequence[str]) -> None:
    """Read the shards whose ends are not known yet; what is left of shards as they were is removed."""
    there = _list_sizes(place)
    missing = [(file, name) for file, name in zip(scan.files, names, strict=True) if name not in there]
    if not missing:
        return  # another process has made them meanwhile
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
    """Return the ends of a corpus's documents; without an index of them all shards are read, once.

    Args:
        directory: The corpus.
        files: Its shards, in order.
        offsets: int64 [num_shards + 1], where they begin in the stream of tokens.
        dtype: Their storage type.

    Raises:
        ConfigError: If there is neither an index nor a known end-of-text token.
        OutputError: If what was found can be kept nowhere.
    """
    meta = _meta(directory)
    if meta is not None and has_doc_index(meta):
        return _indexed(directory, meta, offsets)
    if meta is None:
        raise ConfigError(
            f"{directory} does not tell where its documents end: it has no {META_FILE}. Prepare the corpus, "
            f"or read it as one stream: without documents=True, and with no cut but the default."
        )
    if meta.eos_token_id is None:
        raise ConfigError(
            f"{directory} does not tell where its documents end: {META_FILE} names no eos_token_id. "
            f"Add it there, or prepare the corpus again."
        )
    scan = Scan(
        directory=directory, files=files, dtype=dtype, eos_token_id=meta.eos_token_id,
        checksums=meta.chunk_checksums,
    )  # fmt: skip
    return scanned_ends(scan, offsets)


def _indexed(directory: Path, meta: CorpusMeta, offsets: NDArray[np.int64]) -> DocumentEnds:
    """Return the ends that the preparation wrote down.

    Raises:
        CorpusNotFoundError: If an index is missing.
        CorpusError: If one is shorter or longer than promised.
    """
    files = [chunk.file for chunk in meta.chunks]
    counts = np.array([meta.chunk_documents[file] for file in files], np.int64)
    names = [ends_name(file) for file in files]
    sizes = list_sizes(directory)
    for name, count in zip(names, counts.tolist(), strict=True):
        if sizes.get(name) != count * ENDS_DTYPE.itemsize:
            check_size(directory / name, sizes.get(name), count, ENDS_DTYPE, _ENDS)
    told = [
        f"{file} {meta.doc_index_checksums.get(file) or (directory / name).stat().st_mtime_ns}"
        for file, name in zip(files, names, strict=True)
    ]
    key = hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]
    return DocumentEnds(offsets, counts, EndsFiles(directory, names, counts), key=key)


def pad_id_of(directory: Path) -> int:
    """Return the id that stands at padding: the corpus's end-of-text token, or 0 where it is unknown."""
    meta = _meta(directory)
    return 0 if meta is None or meta.eos_token_id is None else meta.eos_token_id


def _meta(directory: Path) -> CorpusMeta | None:
    path = directory / META_FILE
    return read_meta(path) if path.exists() else None
