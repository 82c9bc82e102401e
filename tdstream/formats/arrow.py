"""Arrow files of `datasets` with a column of token ids: saved datasets, or .arrow files.

The ids of a record batch are one run in the file, which is mapped. Rows are documents, unless all have one
length: then they are blocks, and only a token can mark documents.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tdstream.core.errors import CorpusError
from tdstream.formats.description import (
    CONVERT,
    STORED_AS,
    Description,
    Ends,
    EndsRule,
    FormatOptions,
    IndexedEnds,
    Piece,
    check_pieces,
    check_same_dtype,
    delimiter,
    size_of,
)
from tdstream.formats.file_sets import find_set

NAME = "arrow"
COLUMNS = ("input_ids", "tokens", "token_ids")
"""The columns that hold token ids, the first one that is there."""


def recognize(path: Path) -> str | None:
    """Return the evidence that a path is of this format, else None."""
    if (path / "dataset_dict.json").is_file():
        splits = json.loads((path / "dataset_dict.json").read_text(encoding="utf-8")).get("splits", [])
        raise CorpusError(
            f"{path} holds the splits {', '.join(splits)}. Name one of them, such as {path / splits[0]}."
        )
    files = list_files(path)
    if not files:
        return None
    column = _find_column(_open(files[0]).schema)
    return None if column is None else f"{files[0].name} is an Arrow file with the column {column}"


def describe(path: Path, evidence: str, options: FormatOptions) -> Description:
    """Return a piece for each record batch."""
    batches, dtypes, facts = [], set(), hashlib.sha256()
    for file in list_files(path):
        for batch, dtype in _list_batches(file, path):
            batches.append(batch)
            dtypes.add(dtype)
        facts.update(f"{file.name} {size_of(file)} {len(batches)};".encode())
    if len(dtypes) > 1:
        raise CorpusError(f"{path} holds ids of {' and '.join(sorted(dtypes))}. Name the files of one type.")
    if not batches:
        raise CorpusError(f"{path} holds no row.")
    dtype = dtypes.pop()
    check_same_dtype(options.dtype, dtype, path)
    lengths = {batch.row_tokens for batch in batches}
    ends: EndsRule
    if len(lengths) == 1 and 0 not in lengths and sum(batch.rows for batch in batches) > 1:
        ends = delimiter(options, None, first=None, what=f"{path}, whose rows are blocks of one length,")
    else:
        rows = tuple((batch.piece.path, batch.offsets_at, batch.rows, batch.width) for batch in batches)
        ends = IndexedEnds(
            partial(_read_ends, rows), sum(batch.rows for batch in batches),
            tuple(dict.fromkeys(batch.piece.path for batch in batches)),
        )  # fmt: skip
    return Description(
        format=NAME,
        path=str(path),
        evidence=evidence,
        stored_dtype=dtype,
        pieces=check_pieces(str(path), [batch.piece for batch in batches]),
        ends=ends,
        digest=facts.hexdigest()[:16],
        ends_with_token=not isinstance(ends, IndexedEnds) or options.eos_token_id is not None,
    )


@dataclass(frozen=True, slots=True)
class _Batch:
    """The ids of a record batch."""

    piece: Piece
    rows: int
    row_tokens: int
    """Tokens of each row, 0 if they differ."""
    offsets_at: int
    """Byte of the rows' offsets in the file; -1 if rows have a fixed length."""
    width: int
    """Bytes of an offset; if rows have a fixed length, their tokens."""


def list_files(path: Path) -> list[Path]:
    """Return the files of a saved dataset, or the .arrow files that a path names."""
    state = path / "state.json"
    if state.is_file():
        content = json.loads(state.read_text(encoding="utf-8"))
        return [path / part["filename"] for part in content.get("_data_files", [])]
    return find_set(path, "*.arrow")


def _open(file: Path) -> Any:
    """Return a reader of an Arrow stream, memory-mapped."""
    import pyarrow as pa  # noqa: PLC0415 - half a second that other formats need not wait

    try:
        return pa.ipc.open_stream(pa.memory_map(str(file)))
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{file} is no Arrow stream as `datasets` writes it: {error}. {CONVERT}") from None


def _find_column(schema: Any) -> str | None:
    """Return the column of token ids; None if there is none."""
    import pyarrow as pa  # noqa: PLC0415

    for name in COLUMNS:
        if name in schema.names:
            kind = schema.field(name).type
            is_list = (
                pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
            )
            if is_list and pa.types.is_integer(kind.value_type):
                return name
    return None


def _list_batches(file: Path, path: Path) -> list[tuple[_Batch, str]]:
    import pyarrow as pa  # noqa: PLC0415

    found = []
    mapped = pa.memory_map(str(file))
    base, size = mapped.read_buffer(mapped.size()).address, size_of(file)
    mapped.seek(0)
    reader = pa.ipc.open_stream(mapped)
    name = _find_column(reader.schema)
    if name is None:
        raise CorpusError(
            f"{file} has no column of token ids ({', '.join(COLUMNS)}), as others in {path} have."
        )
    try:
        for batch in reader:
            column = batch.column(name)
            if batch.num_rows:
                found.append((_read_batch(column, file, base, size), str(column.type.value_type)))
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{file} was cut: {error}. Copy it again.") from None
    return found


def _read_batch(column: Any, file: Path, base: int, size: int) -> _Batch:
    """Return where the ids of a column lie in the file whose first byte is at the address `base`."""
    import pyarrow as pa  # noqa: PLC0415

    if column.null_count or column.values.null_count:
        raise CorpusError(f"{file} has rows or ids that are null. {CONVERT}")
    values, rows = column.values, len(column)
    itemsize = STORED_AS[str(values.type)].itemsize
    buffer = values.buffers()[1]
    offsets_at, width = -1, 0
    if pa.types.is_fixed_size_list(column.type):
        width = row_tokens = column.type.list_size
        first, tokens = column.offset * width, rows * width
    else:
        offsets = column.offsets
        width = 8 if pa.types.is_large_list(column.type) else 4
        offsets_at = offsets.buffers()[1].address + offsets.offset * width - base
        numbers = offsets.to_numpy()
        first, tokens = int(numbers[0]), int(numbers[-1] - numbers[0])
        steps = np.diff(numbers)
        row_tokens = int(steps[0]) if (steps == steps[0]).all() else 0
    place = 0 if buffer is None else buffer.address + (values.offset + first) * itemsize - base
    if tokens and not 0 <= place <= size - tokens * itemsize:
        raise CorpusError(f"{file} is compressed, and cannot be mapped. {CONVERT}")
    return _Batch(Piece(str(file), place if tokens else 0, tokens, size), rows, row_tokens, offsets_at, width)


def _read_ends(rows: tuple[tuple[str, int, int, int], ...], piece: int) -> Ends:
    """Return where the rows of a batch end: with offsets 7 9 12, at 2 and 5."""
    path, offsets_at, count, width = rows[piece]
    if offsets_at < 0:
        return np.arange(1, count + 1, dtype=np.int64) * width
    offsets = np.fromfile(path, f"<i{width}", count + 1, offset=offsets_at).astype(np.int64)
    ends: Ends = offsets[1:] - offsets[0]
    return ends
