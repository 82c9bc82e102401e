"""The ends of a corpus's documents, from its index or from a scan for its end-of-text token.

A scan is kept in one file per shard, named after the shard, its size, modification time and checksum: a
shard that changes is scanned again. The file has the format of an index, raw little-endian int64, but the
suffix .eos.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
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
"""Signed, so that ends are added to a shard's offset without a conversion."""
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

    Raises CorpusNotFoundError if the file is missing, and CorpusError if it has another size than promised.
    """
    path, documents = directory / ends_name(chunk_file), meta.chunk_documents[chunk_file]
    size = path.stat().st_size if path.is_file() else None
    check_size(path, size, documents, ENDS_DTYPE, _ENDS)
    ends: NDArray[np.int64] = map_array(path, ENDS_DTYPE, documents, _ENDS)
    return ends


def file_names(meta: CorpusMeta, chunk_files: Iterable[str] | None = None) -> set[str]:
    """Return the names of the files of a corpus, or of some of its shards, without meta.json."""
    files = {chunk.file for chunk in meta.chunks} if chunk_files is None else set(chunk_files)
    return files | ({ends_name(file) for file in files} if meta.doc_index else set())


def corpus_ends(
    directory: Path, files: Sequence[str], offsets: NDArray[np.int64], dtype: np.dtype[Any]
) -> DocumentEnds:
    """Return the ends of a corpus's documents, by its shards' names, offsets and storage type.

    Raises ConfigError if there is neither an index nor a known end-of-text token, and OutputError if the
    result of a scan cannot be stored.
    """
    meta = _meta(directory)
    if meta is None:
        raise ConfigError(
            f"{directory} has no {META_FILE}, so the ends of its documents are unknown. Prepare the corpus, "
            f"or read it as one stream: without documents=True, and with no cut but the default."
        )
    if has_doc_index(meta):
        return _open_index(directory, meta, offsets)
    if meta.eos_token_id is None:
        raise ConfigError(
            f"{directory}: {META_FILE} names no eos_token_id, so the ends of its documents are unknown. "
            f"Add it there, or prepare the corpus again."
        )
    names = {file: _name_scan(directory / file, meta, dtype) for file in files}
    found = (place for place in list_places(directory) if set(names.values()) <= _list_sizes(place).keys())
    place = next(found, None)
    if place is None:
        place = find_writable_place(directory)
        with taking_turns(place, "scan"):
            _scan_missing(directory, place, names, dtype, meta.eos_token_id)
    sizes = _list_sizes(place)
    counts = [sizes[name] // ENDS_DTYPE.itemsize for name in names.values()]
    return _map_all(place, list(names.values()), counts, offsets, versions=list(names.values()))


def _open_index(directory: Path, meta: CorpusMeta, offsets: NDArray[np.int64]) -> DocumentEnds:
    files = [chunk.file for chunk in meta.chunks]
    names, counts = [ends_name(file) for file in files], [meta.chunk_documents[file] for file in files]
    sizes = list_sizes(directory)
    for name, count in zip(names, counts, strict=True):
        if sizes.get(name) != count * ENDS_DTYPE.itemsize:
            check_size(directory / name, sizes.get(name), count, ENDS_DTYPE, _ENDS)
    versions = [
        f"{file} {meta.doc_index_checksums.get(file) or (directory / name).stat().st_mtime_ns}"
        for file, name in zip(files, names, strict=True)
    ]
    return _map_all(directory, names, counts, offsets, versions)


def _map_all(
    place: Path, names: Sequence[str], counts: Sequence[int], offsets: NDArray[np.int64], versions: list[str]
) -> DocumentEnds:
    """Return the ends in files, by the names, counts and versions of the files."""
    load = partial(_map_ends, place, names, counts)
    key = hashlib.sha256("\n".join(versions).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return DocumentEnds(offsets, np.array(counts, np.int64), load, key=key)


def _map_ends(place: Path, names: Sequence[str], counts: Sequence[int], shard: int) -> NDArray[np.int64]:
    ends: NDArray[np.int64] = map_array(place / names[shard], ENDS_DTYPE, counts[shard], _ENDS)
    return ends


def _name_scan(path: Path, meta: CorpusMeta, dtype: np.dtype[Any]) -> str:
    """Return the name of the file with a shard's ends; it changes with all that decides them."""
    status, checksum = os.stat(path), meta.chunk_checksums.get(path.name, "")
    size, changed = status.st_size, status.st_mtime_ns
    facts = (_VERSION, path.name, size, changed, checksum, dtype.name, meta.eos_token_id)
    return f"{path.stem}.{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}{_SUFFIX}"


def _scan_missing(
    directory: Path, place: Path, names: Mapping[str, str], dtype: np.dtype[Any], eos_token_id: int
) -> None:
    """Scan the shards that have not been scanned; remove the scans of their earlier versions."""
    there = _list_sizes(place)
    missing = [(directory / file, place / name) for file, name in names.items() if name not in there]
    if not missing:
        return  # another process was quicker
    from tdstream.core.progress_bar import ProgressBar  # noqa: PLC0415 - help does without tqdm

    logger.info("Scanning %d shards of %s for the ends of documents.", len(missing), directory)
    total = sum(os.path.getsize(shard) for shard, _ in missing)
    with ProgressBar(
        total=total, unit="B", unit_scale=True, desc="ends of documents", delay=1, leave=False
    ) as bar:
        for shard, target in missing:
            _scan_shard(shard, target, dtype, eos_token_id, bar)
            _remove_older(place, there, shard.stem, target.name)


def _scan_shard(shard: Path, target: Path, dtype: np.dtype[Any], eos_token_id: int, bar: Any) -> None:
    done = 0
    with whole_file(target) as out:
        for piece in byte_pieces(shard, PIECE_BYTES):
            tokens = as_tokens(piece, dtype)
            ends = np.flatnonzero(tokens == eos_token_id) + (done + 1)
            out.write(ends.astype(ENDS_DTYPE).tobytes())
            done += len(tokens)
            bar.update(len(piece))


def _remove_older(place: Path, there: Mapping[str, int], stem: str, name: str) -> None:
    for other in there:
        if other.startswith(f"{stem}.") and other.endswith(_SUFFIX) and other != name:
            (place / other).unlink(missing_ok=True)


def _list_sizes(place: Path) -> dict[str, int]:
    try:
        return list_sizes(place)
    except OSError:  # there is no such directory yet
        return {}


def find_pad_id(directory: Path) -> int:
    """Return the id for padding: the corpus's end-of-text token, or 0 if that is unknown."""
    meta = _meta(directory)
    return 0 if meta is None or meta.eos_token_id is None else meta.eos_token_id


def _meta(directory: Path) -> CorpusMeta | None:
    path = directory / META_FILE
    return read_meta(path) if path.exists() else None
