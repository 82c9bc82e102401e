"""Records of a corpus's input files in its meta.json, by which an append takes only the new ones.

A record is a string of six parts, "size:mtime_ns:first:content:path:options": the bytes of the file, its
modification time, hashes of its first 256 bytes, of its first and last 64 KiB and of its absolute path, and
one of the options that decide what is read of it. A seventh part, "part", stands in that of a file in which
`max_samples` ended the reading. A file with an equal size and content hash is the same one, under whatever
path. A file that begins with the bytes of a recorded one has grown.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tdstream.corpus.meta import CorpusMeta
from tdstream.text.batches import FilesReached
from tdstream.text.provenance import describe_file

_FIRST = 256
_EDGE = 1 << 16
_MOST_PROVED = 2000  # files of a corpus without records that are looked for
_PART = "part"
_LEAST_PREFIX = 256  # bytes; shorter files, such as the head of a csv file, begin unrelated ones too


class InputFile(NamedTuple):
    """A recorded input file."""

    size: int
    mtime_ns: int
    first: str
    content: str
    path: str
    options: str
    part: str = ""
    """`_PART` if perhaps not all of its records were read, else empty."""

    @classmethod
    def parse(cls, record: str) -> InputFile | None:
        """Return the file of a record; None if it is of another form."""
        parts = record.split(":")
        if not 6 <= len(parts) <= 7 or parts[6:] not in ([], [_PART]):
            return None
        if not all(part.lstrip("-").isdigit() for part in parts[:2]):
            return None
        return cls(int(parts[0]), int(parts[1]), *parts[2:])

    def __str__(self) -> str:
        return ":".join(map(str, self if self.part else self[:-1]))


@dataclass(kw_only=True, slots=True)
class SortedFiles:
    """Input files, by whether their documents are in a corpus already."""

    new: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    """Files of which perhaps only the first records are in the corpus, for `max_samples`."""
    grown: list[tuple[str, int]] = field(default_factory=list)
    """Files that begin with the bytes of one that is in the corpus, and how many."""
    changed: list[str] = field(default_factory=list)
    """Files at the path of one that is in the corpus, with other bytes."""
    num_others: int = 0
    """Recorded files that are not among these."""
    is_certain: bool = True
    """Whether the corpus records all files it was made from."""

    @property
    def are_all(self) -> bool:
        """Whether the corpus has all of these files, and no others."""
        rest = self.new or self.partial or self.grown or self.changed or self.num_others
        return bool(self.known) and self.is_certain and not rest

    def describe(self) -> str:
        """Return one line: "3 of 5 files are in the corpus already, 2 are new"."""
        known, new = len(self.known), len(self.new)
        first, second = ("is" if number == 1 else "are" for number in (known, new))
        return f"{known:,} of {known + new:,} files {first} in the corpus already, {new:,} {second} new"


def record_files(
    files: Sequence[str], identity: dict[str, Any], reached: FilesReached | None = None
) -> list[str]:
    """Return the records of files, for meta.json; `identity` is that of their preparation.

    `reached` tells which of them were read; None means all.
    """
    options = _hash_options(identity)
    whole, begun = reached or (len(files), len(files))
    records = [_describe(file, options) for file in files[:begun]]
    return [str(record if n < whole else record._replace(part=_PART)) for n, record in enumerate(records)]


def sort_files(files: Sequence[str], identity: dict[str, Any], base: CorpusMeta) -> SortedFiles:
    """Tell new files from those that are in a corpus; `identity` is that of their preparation."""
    options, found = _hash_options(identity), SortedFiles()
    parsed = [InputFile.parse(str(record)) for record in base.input_files]
    records = [record for record in parsed if record is not None and record.options == options]
    by_path = {record.path: record for record in records}
    by_content = {(record.size, record.content) for record in records}
    partial = by_content - {(record.size, record.content) for record in records if not record.part}
    others = set(by_content)
    by_first = defaultdict(set)
    for record in records:
        if record.size >= _LEAST_PREFIX:
            by_first[record.first].add((record.size, record.content))
    sure = set(_find_proved(base, files))
    found.is_certain = bool(sure) or (None not in parsed and (bool(parsed) or _had_no_files(base)))
    for file in files:
        path, size, mtime_ns = describe_file(file)
        before = by_path.get(_hash(path.encode("utf-8", "surrogateescape"), 12))
        if file in sure:
            found.known.append(file)
            continue
        if before is not None and (before.size, before.mtime_ns) == (size, mtime_ns):
            (found.partial if before.part else found.known).append(file)
            others.discard((before.size, before.content))
            continue
        now = _describe(file, options)
        prefixes = by_first[now.first] | ({(before.size, before.content)} if before is not None else set())
        if (now.size, now.content) in by_content:
            (found.partial if (now.size, now.content) in partial else found.known).append(file)
            others.discard((now.size, now.content))
        elif (prefix := _find_prefix(file, now.size, prefixes)) is not None:
            found.grown.append((file, prefix))
        elif before is not None and before.size > 0:
            found.changed.append(file)
        else:
            found.new.append(file)
    found.num_others = len(others)
    return found


def _find_proved(base: CorpusMeta, files: Sequence[str]) -> list[str]:
    """Return the files that a corpus without records was made from, if its hash of all of them shows it."""
    if base.input_files or base.appended or "files" not in base.made_from or len(files) > _MOST_PROVED:
        return []
    known = [_stat(file) for file in files]
    older = [place for place, fact in enumerate(known) if fact[2] < base.created_at_unix * 10**9]
    for places in (older, *(list(range(stop)) for stop in range(len(files), 0, -1))):
        if short_hash(_sum_up([known[place] for place in places])) == base.made_from["files"]:
            return [files[place] for place in places]
    return []


def _had_no_files(base: CorpusMeta) -> bool:
    return bool(base.made_from) and "files" not in base.made_from and not base.appended


def _find_prefix(file: str, size: int, prefixes: set[tuple[int, str]]) -> int | None:
    """Return the size of a recorded file that a file begins with; None if there is none."""
    shorter = sorted((prefix for prefix in prefixes if 0 < prefix[0] < size), reverse=True)
    return next((length for length, content in shorter if _hash_edges(file, length)[1] == content), None)


def _describe(file: str, options: str) -> InputFile:
    path, size, mtime_ns = describe_file(file)
    first, content = _hash_edges(file, size) if size >= 0 else ("", "")
    return InputFile(
        size, mtime_ns, first, content, _hash(path.encode("utf-8", "surrogateescape"), 12), options
    )


def _hash_edges(file: str, size: int) -> tuple[str, str]:
    """Return two hashes of a file's first `size` bytes: of 256 bytes, and of 64 KiB at both ends."""
    with Path(file).open("rb", buffering=0) as opened:
        head = os.pread(opened.fileno(), min(size, _EDGE), 0)
        tail = os.pread(opened.fileno(), _EDGE, size - _EDGE) if size > _EDGE else b""
    return _hash(head[:_FIRST], 8), _hash(head + tail, 16)


def _hash_options(identity: dict[str, Any]) -> str:
    names = ("text_field", "lines", "strip")
    return _hash(repr([identity.get(name) or None for name in names]).encode("utf-8", "surrogatepass"), 8)


def _hash(content: bytes, digits: int) -> str:
    return hashlib.sha256(content).hexdigest()[:digits]


def short_hash(value: Any) -> str:
    """Return a hash of JSON types as 16 hexadecimal digits."""
    content = json.dumps(value, sort_keys=True).encode("utf-8", "surrogateescape")
    return hashlib.sha256(content).hexdigest()[:16]


def digest_files(files: Iterable[str]) -> dict[str, Any]:
    """Return the number of files, their bytes, and a hash of their names, sizes and modification times."""
    return _sum_up([_stat(file) for file in files])


def _sum_up(known: list[tuple[str, int, int]]) -> dict[str, Any]:
    content = json.dumps(known).encode("utf-8", "surrogateescape")
    return {
        "count": len(known),
        "bytes": sum(size for _, size, _ in known),
        "sha256": hashlib.sha256(content).hexdigest()[:16],
    }


def _stat(file: str) -> tuple[str, int, int]:
    try:
        facts = Path(file).stat()
    except OSError:  # on the hub; the URL contains the revision
        return file, 0, 0
    return os.path.normpath(file), facts.st_size, facts.st_mtime_ns
