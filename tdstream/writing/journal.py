"""Journal of an unfinished corpus: which shards are safe, and where the input stood at the end of each.

It is a file of JSON lines beside the shards::

    {"tdstream_journal": 1, "plan": {...}, "identity": {...}}      the header; decides every byte
    {"file": "chunk_000000.bin", "tokens": 100, "checksum": "sha256:...", "note": {...},
     "documents": 7, "ends_checksum": "sha256:..."}                the last two with an index only
    ...
    {"file": "", ..., "note": {...}}                               a finished task's note after its last shard
    {"done": true}                                                 the task is finished

A line is written after its shard is durable under its final name, and made durable before the next shard
starts. A truncated last line is ignored, and its shard is written again.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tdstream.core.errors import CorpusError
from tdstream.corpus.document_index import ENDS_DTYPE, ends_name
from tdstream.corpus.mapped_array import list_sizes
from tdstream.corpus.meta import FORMAT_VERSION, CorpusMeta, Shard, fsync_directory

JOURNAL_FILE = "journal.jsonl"
JOURNAL_VERSION = 1
PROVENANCE_KEY = "provenance"
"""Key in an identity for what stands behind a stream; journals of earlier versions lack it."""
_VERSION_KEY = "tdstream_journal"
_DONE = b'{"done":true}\n'


class IndexEntry(NamedTuple):
    """A shard's index of document ends."""

    documents: int
    checksum: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A safe shard: durable under its final name."""

    shard: Shard
    checksum: str
    note: dict[str, Any]
    """The caller's data for resuming after this shard."""
    index: IndexEntry | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the journal's line, in JSON types."""
        line = {**self.shard._asdict(), "checksum": self.checksum, "note": self.note}
        if self.index is not None:
            line |= {"documents": self.index.documents, "ends_checksum": self.index.checksum}
        return line

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> JournalEntry:
        """Return the entry of a line; KeyError, TypeError or ValueError if it is malformed."""
        shard = Shard(str(line["file"]), int(line["tokens"]))
        indexed = "documents" in line
        index = IndexEntry(int(line["documents"]), str(line["ends_checksum"])) if indexed else None
        return cls(shard, str(line["checksum"]), dict(line["note"]), index)

    def file_sizes(self, width: int) -> dict[str, int]:
        """Return the shard's files and their sizes in bytes, at `width` bytes per token."""
        sizes = {self.shard.file: self.shard.tokens * width}
        if self.index is not None:
            sizes[ends_name(self.shard.file)] = self.index.documents * ENDS_DTYPE.itemsize
        return sizes


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalContent:
    """The content of a journal."""

    plan: dict[str, Any]
    """The future meta.json without shards."""
    identity: dict[str, Any]
    """Everything that decides the bytes of the shards."""
    entries: list[JournalEntry] = field(default_factory=list)
    tail: list[JournalEntry] = field(default_factory=list)
    """In a finished task, one entry without a file: the note after the last shard."""
    done: bool = False
    num_bytes: int = 0
    """Bytes of the complete lines."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are safe."""
        return sum(entry.shard.tokens for entry in self.entries)

    @property
    def num_documents(self) -> int:
        """Documents that are completely safe, if the notes count them."""
        return sum(int(entry.note.get("documents", 0)) for entry in [*self.entries, *self.tail])


class Journal:
    """A journal that is open for writing."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def create(cls, directory: Path, plan: CorpusMeta, identity: dict[str, Any]) -> Journal:
        """Create the journal of a directory, without shards."""
        path = directory / JOURNAL_FILE
        temporary = path.with_name(path.name + ".tmp")
        header = {_VERSION_KEY: JOURNAL_VERSION, "plan": plan.to_json(), "identity": identity}
        with temporary.open("wb") as file:
            file.write(_encode(header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_directory(directory)
        return cls(path)

    @classmethod
    def resume(cls, directory: Path, content: JournalContent) -> Journal:
        """Open the journal of a directory after its last complete line."""
        os.truncate(directory / JOURNAL_FILE, content.num_bytes)
        return cls(directory / JOURNAL_FILE)

    def add(self, entry: JournalEntry) -> None:
        """Record a safe shard."""
        self._write(entry.to_json())

    def finish(self, note: dict[str, Any]) -> None:
        """Record that the task is finished, with its note after the last shard."""
        self._write(JournalEntry(Shard("", 0), "", note).to_json())
        self._write(json.loads(_DONE))

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, content: dict[str, Any]) -> None:
        if self._descriptor is None:
            raise CorpusError("The journal is closed; nothing can be added to it.")
        line = memoryview(_encode(content))
        while line:
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def read_journal(directory: Path) -> JournalContent | None:
    """Return the journal of a directory; None if there is none, CorpusError if it cannot be read."""
    path = directory / JOURNAL_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = content.split(b"\n")[:-1]  # the rest is a truncated line
    parsed = [_parse(path, number, line, last=number == len(lines)) for number, line in enumerate(lines, 1)]
    whole = [line for line in parsed if line is not None]
    if whole and whole[-1].get("file") == "":  # killed before {"done": true}: finish again
        whole.pop()
    _check_version(path, whole[0] if whole else {})
    num_bytes = sum(len(line) + 1 for line in lines[: len(whole)])
    try:
        return _content(whole, num_bytes)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"it lacks or misstates {error}") from None


def _parse(path: Path, number: int, line: bytes, *, last: bool) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    if last and number > 1:  # a power cut may leave the length of a line without its bytes
        return None
    raise _damaged(path, f"line {number:,} is no JSON object")


def _check_version(path: Path, header: dict[str, Any]) -> None:
    version = header.get(_VERSION_KEY)
    if type(version) is not int:
        raise _damaged(path, "it does not begin with its version")
    if version > JOURNAL_VERSION:
        raise CorpusError(
            f"{path} has version {version}, this tdstream reads up to {JOURNAL_VERSION}.",
            "Install a newer tdstream to resume, or pass {overwrite} to start again.",
        )


def _content(lines: list[dict[str, Any]], num_bytes: int) -> JournalContent:
    header, *rest = lines
    done = bool(rest) and rest[-1].get("done") is True
    entries = [JournalEntry.from_json(line) for line in (rest[:-1] if done else rest)]
    tail = [entries.pop()] if entries and not entries[-1].shard.file else []
    plan, identity = dict(header["plan"]), dict(header["identity"])
    return JournalContent(
        plan=plan, identity=identity, entries=entries, tail=tail, done=done, num_bytes=num_bytes
    )


def _damaged(path: Path, what: str) -> CorpusError:
    return CorpusError(f"{path} is damaged: {what}.", "Pass {overwrite} to start again.")


def is_done(directory: Path) -> bool:
    """Return whether a directory's journal ends with {"done": true}; reads only its end."""
    try:
        with (directory / JOURNAL_FILE).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - len(_DONE), 0))
            return file.read() == _DONE
    except FileNotFoundError:
        return False


def list_changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return a phrase for each difference between two identities: "seed was 1, is 2"."""
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    return [_describe_change(name, before.get(name), now.get(name)) for name in names]


def _describe_change(name: str, before: Any, now: Any) -> str:
    if before is None and isinstance(now, bool):
        before = not now  # older versions left out a switch that was off
    was, is_now = _show(before), _show(now)
    other = " with other names, content or times of change" if was == is_now else ""
    return f"{name} was {was}, is {is_now}{other}"


def _show(value: Any) -> str:
    if isinstance(value, dict) and value.keys() == {"count", "bytes", "sha256"}:  # input files
        count = value["count"]
        return f"{count:,} file{'' if count == 1 else 's'} of {value['bytes']:,} bytes"
    if isinstance(value, dict):
        return f"({', '.join(f'{name} {_show(part)}' for name, part in value.items())})"
    return f"{value:,}" if type(value) is int else repr(value)


def check_shards(directory: Path, entries: list[JournalEntry], width: int) -> None:
    """Refuse to resume if a file of a safe shard is missing or has the wrong size."""
    sizes = list_sizes(directory)
    for entry in entries:
        for name, expected in entry.file_sizes(width).items():
            size = sizes.get(name)
            if size != expected:
                found = "is missing" if size is None else f"has {size:,} bytes"
                raise CorpusError(
                    f"{directory / name} {found}, but the journal says {expected:,} bytes.",
                    "Restore it, or pass {overwrite} without {resume} to start again.",
                )


def complete_meta(plan: CorpusMeta, entries: list[JournalEntry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of a corpus of these shards."""
    encoder = join_encoders([str(entry.note.get("encoder", "")) for entry in entries])
    indices = {entry.shard.file: entry.index for entry in entries if entry.index is not None}
    return replace(
        plan,
        chunks=tuple(entry.shard for entry in entries),
        chunk_checksums={entry.shard.file: entry.checksum for entry in entries},
        chunk_documents={file: index.documents for file, index in indices.items()},
        doc_index_checksums={file: index.checksum for file, index in indices.items()},
        num_documents=num_documents,
        encoder=encoder or plan.encoder,
        created_at_unix=int(time.time()),
        format_version=FORMAT_VERSION,
    )


def join_encoders(names: list[str]) -> str:
    """Return the distinct encoders in order of first use: "gigatoken+hf"."""
    return "+".join(dict.fromkeys(part for name in names for part in name.split("+") if part))
