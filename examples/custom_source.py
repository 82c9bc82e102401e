"""Tokens from a SQLite table, as a token source of your own.

    python examples/custom_source.py tokens.db

Writes a small table if there is none, reads it with two workers, stops in the middle of the epoch, and
resumes without workers and with another batch size. SQLiteTokens works with everything that `tdstream.build`
offers: every cut, mixtures, exact resume on another number of ranks. docs/custom-sources.md explains it.
"""

from __future__ import annotations

import argparse
import hashlib
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tdstream
from tdstream.nodes import DocumentEnds, IdentityState, TokenStream

Tokens = NDArray[np.uint16]

READ = """SELECT first, ids FROM documents WHERE first < :end
          AND first >= (SELECT max(first) FROM documents WHERE first <= :start) ORDER BY first"""


class SQLiteStream(TokenStream):
    """An open connection to the table; each process that reads has its own."""

    def __init__(self, path: str) -> None:
        # A loader with device= reads in a thread, one read at a time.
        self.database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, check_same_thread=False)

    def __del__(self) -> None:
        """Close the connection."""
        self.database.close()

    def slices(self, starts: Iterable[int], lengths: Iterable[int]) -> list[Any]:
        """Return the tokens from each start."""
        return [self.read(start, start + length) for start, length in zip(starts, lengths, strict=True)]

    def read(self, start: int, end: int) -> Tokens:
        """Return tokens start .. end - 1 of the joined documents."""
        rows = self.database.execute(READ, {"start": start, "end": end}).fetchall()
        tokens = np.frombuffer(b"".join(ids for _, ids in rows), np.uint16)
        return tokens[start - rows[0][0] : end - rows[0][0]]


class SQLiteTokens(IdentityState):
    """A table `documents` with the place of each document's first token, and its ids, uint16."""

    name, dtype, pad_id = "source", np.dtype(np.uint16), 0

    def __init__(self, path: str) -> None:
        self.path = self.what = path
        digest, ends = hashlib.sha256(), [0]
        with closing(sqlite3.connect(path)) as database:
            # Reads the whole table once; keep a large table's digest and sizes in a table of their own.
            for (ids,) in database.execute("SELECT ids FROM documents ORDER BY first"):
                digest.update(ids)
                ends.append(ends[-1] + len(ids) // 2)
        self.total_tokens, self.content, self._ends = ends[-1], digest.hexdigest()[:16], np.array(ends[1:])

    def __repr__(self) -> str:
        return f"SQLiteTokens({self.path}, {self.total_tokens:,} tokens)"

    def state_dict(self) -> dict[str, Any]:
        """Return what tells this table from others, wherever it lies."""
        return {"total_tokens": self.total_tokens, "content": self.content}

    def open(self) -> SQLiteStream:
        """Connect; readers call this at the first read in each process."""
        return SQLiteStream(self.path)

    def ends(self) -> DocumentEnds:
        """Return where documents end, for cut="document", cut="pack" and documents=True."""
        return DocumentEnds.of(self._ends, self.total_tokens)


def write_table(path: str, documents: int = 200, seed: int = 0) -> None:
    """Write random documents, each with token 0 at its end."""
    generator, first = np.random.default_rng(seed), 0
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE documents (first INTEGER PRIMARY KEY, ids BLOB)")
        for length in generator.integers(2, 60, documents).tolist():
            ids = np.append(generator.integers(1, 512, length), 0).astype(np.uint16)
            database.execute("INSERT INTO documents VALUES (?, ?)", (first, ids.tobytes()))
            first += len(ids)


def main() -> None:
    """Write, read, stop, resume."""
    parser = argparse.ArgumentParser(description="Read tokens from a SQLite table.")
    parser.add_argument("path", help="the database")
    path = parser.parse_args().path
    if not Path(path).exists():
        write_table(path)
    options = {"seq_len": 32, "shuffle": True, "seed": 42}
    whole = tdstream.loader(SQLiteTokens(path), batch_size=1, **options)
    rows = [batch["input_ids"][0].tolist() for batch in whole]

    loader = tdstream.loader(SQLiteTokens(path), batch_size=4, num_workers=2, **options)
    batches = iter(loader)
    read = [row for _ in range(5) for row in next(batches)["input_ids"].tolist()]
    state = loader.state_dict()

    resumed = tdstream.loader(SQLiteTokens(path), batch_size=3, **options)
    resumed.load_state_dict(state)
    rest = [row for batch in resumed for row in batch["input_ids"].tolist()]
    served = read + rest
    if served != rows[: len(served)] or len(rows) - len(served) >= 3:
        raise SystemExit("the rows differ")
    print(f"{len(read)} rows with two workers, {len(rest)} after the resume: each row once, in order")


if __name__ == "__main__":
    main()
