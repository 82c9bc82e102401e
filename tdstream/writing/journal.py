"""Remember which shards of an unfinished corpus are safe, and where the input stood at each one's end.

A journal is a text file of JSON lines, in the directory of the shards that it tells of::

    {"tdstream_journal": 1, "plan": {...}, "identity": {...}}      what is being prepared; decides the bytes
    {"file": "chunk_000000.bin", "tokens": 100, "checksum": "sha256:...", "note": {...},
     "documents": 7, "ends_checksum": "sha256:..."}                the last two where there is an index
    ...
    {"file": "", ..., "note": {...}}                               what there is to say behind the last shard
    {"done": true}                                                 only where nothing is left to be written

A line is written when its shard is durable under its name, and is durable itself before the next shard is
begun. A last line that is cut was never written; its shard is written again.
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
from tdstream.corpus.meta import FORMAT_VERSION, CorpusMeta, Shard, fsync_directory


class Index(NamedTuple):
    """The index of the documents that end in a shard."""

    documents: int
    checksum: str


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One shard that is safe."""

    chunk: Shard
    checksum: str
    note: dict[str, Any]
    """What the writer's caller wants to know when it goes on behind this shard."""
    index: Index | None = None


def line_of(entry: JournalEntry) -> dict[str, Any]:
    """Return what a journal says of a shard, in JSON types.

    Args:
        entry: The shard.
    """
    chunk = entry.chunk
    line = {"file": chunk.file, "tokens": chunk.tokens, "checksum": entry.checksum, "note": entry.note}
    if entry.index is not None:
        line |= {"documents": entry.index.documents, "ends_checksum": entry.index.checksum}
    return line


def entry_of(line: dict[str, Any]) -> JournalEntry:
    """Return the shard that a line tells of.

    Args:
        line: What `line_of` returned.

    Raises:
        KeyError: If it lacks something.
        ValueError: If something is not what it should be.
    """
    chunk = Shard(str(line["file"]), int(line["tokens"]))
    indexed = "documents" in line
    index = Index(int(line["documents"]), str(line["ends_checksum"])) if indexed else None
    return JournalEntry(chunk, str(line["checksum"]), dict(line["note"]), index)


JOURNAL_FILE = "journal.jsonl"
JOURNAL_VERSION = 1
_VERSION_KEY = "tdstream_journal"
_DONE = b'{"done":true}\n'


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """What a journal says."""

    plan: dict[str, Any]
    """The meta.json that is to be, without its shards."""
    identity: dict[str, Any]
    """Everything that decides the bytes of the shards."""
    entries: list[JournalEntry] = field(default_factory=list)
    tail: list[JournalEntry] = field(default_factory=list)
    """Where nothing is left to be written: what there is to say behind the last shard; one without a file."""
    done: bool = False
    num_bytes: int = 0
    """Length of the lines that are whole."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are safe."""
        return sum(entry.chunk.tokens for entry in self.entries)

    @property
    def num_documents(self) -> int:
        """Documents that are safe as a whole, if the notes count them."""
        return sum(int(entry.note.get("documents", 0)) for entry in [*self.entries, *self.tail])


class Journal:
    """A journal that is open for writing."""

    def __init__(self, path: Path) -> None:
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND)

    @classmethod
    def begin(cls, directory: Path, plan: CorpusMeta, identity: dict[str, Any]) -> Journal:
        """Begin a journal without shards.

        Args:
            directory: Where the shards are to lie.
            plan: What is known of the corpus.
            identity: Everything that decides the bytes; JSON types.
        """
        path = directory / JOURNAL_FILE
        temporary = path.with_name(path.name + ".tmp")
        header = {_VERSION_KEY: JOURNAL_VERSION, "plan": plan.to_json(), "identity": identity}
        with temporary.open("wb") as file:
            file.write(_line(header))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        fsync_directory(directory)
        return cls(path)

    @classmethod
    def go_on(cls, directory: Path, record: Record) -> Journal:
        """Go on with a journal behind its last whole line.

        Args:
            directory: Where it lies.
            record: What it says.
        """
        os.truncate(directory / JOURNAL_FILE, record.num_bytes)
        return cls(directory / JOURNAL_FILE)

    def add(self, entry: JournalEntry) -> None:
        """Take note of a shard that is durable under its name."""
        self._write(line_of(entry))

    def finish(self, note: dict[str, Any]) -> None:
        """Take note that nothing is left to be written.

        Args:
            note: What there is to say behind the last shard.
        """
        self._write(line_of(JournalEntry(Shard("", 0), "", note)))
        self._write(json.loads(_DONE))

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _write(self, content: dict[str, Any]) -> None:
        if self._descriptor is None:
            raise CorpusError("The journal is closed; nothing can be added to it.")
        line = memoryview(_line(content))
        while line:
            line = line[os.write(self._descriptor, line) :]
        os.fsync(self._descriptor)


def read_journal(directory: Path) -> Record | None:
    """Return what the journal of a directory says; None if there is none.

    Args:
        directory: Where the shards lie.

    Raises:
        CorpusError: If it is damaged, or of a newer version.
    """
    path = directory / JOURNAL_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    lines = content.split(b"\n")[:-1]  # What stands behind the last line break was cut.
    parsed = [_parsed(path, number, line, last=number == len(lines)) for number, line in enumerate(lines, 1)]
    whole = [line for line in parsed if line is not None]
    if (
        whole and whole[-1].get("file") == ""
    ):  # The run ended before the line behind it, and has to end again.
        whole.pop()
    _check_version(path, whole[0] if whole else {})
    num_bytes = sum(len(line) + 1 for line in lines[: len(whole)])
    try:
        return _record(whole, num_bytes)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, f"it lacks or misstates {error}") from None


def is_done(directory: Path) -> bool:
    """Return whether the journal of a directory ends with the note that nothing is left to be written.

    Args:
        directory: Where it lies.
    """
    try:
        with (directory / JOURNAL_FILE).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(file.tell() - len(_DONE), 0))
            return file.read() == _DONE
    except FileNotFoundError:
        return False


def changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return how two identities differ, a phrase for each difference.

    Args:
        before: The identity in a journal.
        now: The identity of what is to be done.
    """
    names = dict.fromkeys([*before, *now])
    return [
        f"{name} was {_shown(before.get(name))}, is {_shown(now.get(name))}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def _shown(value: Any) -> str:
    return f"{value:,}" if type(value) is int else repr(value)


def _line(content: dict[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(path: Path, number: int, line: bytes, *, last: bool) -> dict[str, Any] | None:
    try:
        content = json.loads(line)
    except ValueError:
        content = None
    if isinstance(content, dict):
        return content
    if last and number > 1:  # A power cut may leave the length of a line without its bytes.
        return None
    raise _damaged(path, f"line {number:,} is no JSON object")


def _check_version(path: Path, header: dict[str, Any]) -> None:
    version = header.get(_VERSION_KEY)
    if type(version) is not int:
        raise _damaged(path, "it does not begin with its version")
    if version > JOURNAL_VERSION:
        raise CorpusError(
            f"{path} has version {version}, this tdstream reads up to {JOURNAL_VERSION}.",
            "Install a newer tdstream to continue, or pass {overwrite} to begin again.",
        )


def _record(lines: list[dict[str, Any]], num_bytes: int) -> Record:
    header, *rest = lines
    done = bool(rest) and rest[-1].get("done") is True
    entries = [entry_of(line) for line in (rest[:-1] if done else rest)]
    tail = [entries.pop()] if entries and not entries[-1].chunk.file else []
    plan, identity = dict(header["plan"]), dict(header["identity"])
    return Record(plan=plan, identity=identity, entries=entries, tail=tail, done=done, num_bytes=num_bytes)


def _damaged(path: Path, what: str) -> CorpusError:
    return CorpusError(f"{path} is damaged: {what}.", "Pass {overwrite} to begin again.")


def meta_of(plan: CorpusMeta, entries: list[JournalEntry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of a corpus that is complete.

    Args:
        plan: What was known beforehand.
        entries: Its shards.
        num_documents: DocumentCounts that their tokens came from.
    """
    encoder = joined_encoders([str(entry.note.get("encoder", "")) for entry in entries])
    indices = {entry.chunk.file: entry.index for entry in entries if entry.index is not None}
    return replace(
        plan,
        chunks=tuple(entry.chunk for entry in entries),
        chunk_checksums={entry.chunk.file: entry.checksum for entry in entries},
        chunk_documents={file: index.documents for file, index in indices.items()},
        doc_index_checksums={file: index.checksum for file, index in indices.items()},
        num_documents=num_documents,
        encoder=encoder or plan.encoder,
        created_at_unix=int(time.time()),
        format_version=FORMAT_VERSION,
    )


def val_meta_of(plan: CorpusMeta, entries: list[JournalEntry], num_documents: int) -> CorpusMeta:
    """Return the meta.json of the documents that were held out of a corpus.

    Args:
        plan: What was known of that corpus.
        entries: The shards of these documents.
        num_documents: How many they are.
    """
    return meta_of(replace(plan, holdout={**plan.holdout, "part": "val"}), entries, num_documents)


def joined_encoders(names: list[str]) -> str:
    """Return which encoders wrote a corpus, in the order of their first use: "gigatoken+hf".

    Args:
        names: Those that wrote its parts, each spelled in the same way.
    """
    return "+".join(dict.fromkeys(part for name in names for part in name.split("+") if part))


def files_of(entry: JournalEntry, width: int) -> list[tuple[str, int]]:
    """Return the names of a shard and of its index, and the bytes that they have.

    Args:
        entry: The shard.
        width: Bytes of a token.
    """
    files = [(entry.chunk.file, entry.chunk.tokens * width)]
    if entry.index is not None:
        files.append((ends_name(entry.chunk.file), entry.index.documents * ENDS_DTYPE.itemsize))
    return files


def check_shards(directory: Path, entries: list[JournalEntry], width: int) -> None:
    """Refuse to go on where something that was safe is gone.

    Args:
        directory: Where the shards lie.
        entries: Those that are safe.
        width: Bytes of a token.

    Raises:
        CorpusError: If one is gone or has another size.
    """
    for name, promised in (file for entry in entries for file in files_of(entry, width)):
        path = directory / name
        size = path.stat().st_size if path.exists() else -1
        if size != promised:
            found = f"has {size:,} bytes" if size >= 0 else "is gone"
            raise CorpusError(
                f"{path} {found}, but the journal promises {promised:,} bytes.",
                "Bring it back, or pass {overwrite} without {resume} to begin again.",
            )
