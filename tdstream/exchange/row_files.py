"""Token files that cannot be mapped, read in order: compressed, encoded, or with rows of any length."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.formats import arrow, litdata, mds
from tdstream.formats.description import STORED_AS, FormatOptions
from tdstream.formats.file_sets import find_set

_COLUMNS = ("input_ids", "tokens", "token_ids")
_LEDGER = "shard_ledger.json"  # of Levanter
_ROWS = 1000  # of parquet at a time
_NDARRAY_TYPES = {
    8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 32: "uint32", 33: "int32", 64: "uint64", 65: "int64",
}  # fmt: skip
"""Codes of types in the rows of MDS."""


class Rows(NamedTuple):
    """Consecutive rows."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowFiles:
    """Files of rows."""

    format: str
    dtype: str
    """Type of the ids."""
    files: tuple[Path, ...]
    """What decides the rows."""
    read: Callable[[], Iterator[Rows]]
    """Yields all rows, in order."""
    are_blocks: bool
    """Whether rows are cut from a stream, so that their ends are not those of documents."""


def open_rows(path: Path, told: FormatOptions, column: str | None) -> RowFiles | None:
    """Return the rows at a path; None if they are of no known format.

    Raises CorpusError if they are damaged or refused, and ConfigError if a type or column has to be told.
    """
    if (path / _LEDGER).is_file():
        return _open_levanter(path, column)
    if mds.recognize(path) is not None:
        return _open_mds(path, told, column)
    if litdata.recognize(path) is not None:
        return _open_litdata(path)
    for ending, list_batches in ((".parquet", _list_parquet), (".arrow", _list_arrow)):
        files = arrow.list_files(path) if ending == ".arrow" else find_set(path, f"*{ending}")
        if files:
            return _open_tables(ending[1:], files, column, list_batches)
    return None


# Arrow and parquet.


def _open_tables(
    name: str, files: Sequence[Path], column: str | None, list_batches: Callable[[Path], Iterator[Any]]
) -> RowFiles:
    def read() -> Iterator[Rows]:
        for file in files:
            for batch in list_batches(file):
                yield _flatten(batch.column(_find_column(file, batch.schema, column)), file)

    first = next((rows for rows in read() if len(rows.lengths)), None)
    if first is None:
        raise CorpusError(f"{files[0]} and the files with it hold no row.")
    one_length = len(first.lengths) > 1 and len(set(first.lengths.tolist())) == 1
    return RowFiles(name, first.ids.dtype.name, tuple(files), read, one_length)


def _list_parquet(file: Path) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - half a second
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        with pq.ParquetFile(file) as opened:
            yield from opened.iter_batches(batch_size=_ROWS)
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{file} cannot be read as parquet: {error}. Copy it again.") from None


def _list_arrow(file: Path) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415

    try:
        with pa.memory_map(str(file)) as mapped:
            try:
                yield from pa.ipc.open_stream(mapped)
            except pa.ArrowInvalid:
                mapped.seek(0)
                opened = pa.ipc.open_file(mapped)
                yield from map(opened.get_batch, range(opened.num_record_batches))
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{file} cannot be read as Arrow: {error}. Copy it again.") from None


def _find_column(file: Path, schema: Any, column: str | None) -> str:
    """Return the column of token ids: the one that is named, or that has a usual name."""
    import pyarrow as pa  # noqa: PLC0415

    kinds = {field.name: field.type for field in schema}
    name = column or next((name for name in _COLUMNS if name in kinds), None)
    kind: Any = kinds.get(name)
    is_list = kind is not None and (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    if name is None or not is_list or not pa.types.is_integer(kind.value_type):
        found = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise ConfigError(
            f"{file} has {'no column of token ids' if column is None else f'no token ids in {column!r}'}; it "
            f"has {found}.",
            "Name a column of lists of whole numbers with {column:...}. If it holds text, prepare it.",
        )
    return name


def _flatten(column: Any, file: Path) -> Rows:
    rows = column.drop_null()  # rows without a value are empty documents
    values = rows.flatten()
    if values.null_count:
        raise CorpusError(f"{file} has ids that are null, which stand for no token. Fill or drop them.")
    lengths = rows.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return Rows(values.to_numpy(zero_copy_only=False), lengths)


# MDS.


def _open_mds(path: Path, told: FormatOptions, column: str | None) -> RowFiles:
    shards: list[dict[str, Any]] = (litdata.read_index(path) or {})["shards"]
    columns = {_find_mds_column(path, shard, column) for shard in shards}
    if len(columns) > 1:
        raise CorpusError(f"{path} has shards with different columns. Convert those of one kind at a time.")
    _, encoding = columns.pop()
    dtype = _find_mds_dtype(path, shards[0], encoding, column, told)
    files = tuple(path / _name_mds_file(path, shard) for shard in shards)

    def read() -> Iterator[Rows]:
        for file, shard in zip(files, shards, strict=True):
            content = _read_whole(file, str(shard.get("compression") or ""))
            number, (name, kind) = int(shard["samples"]), _find_mds_column(path, shard, column)
            places = np.frombuffer(content, "<u4", number + 1, 4).tolist()
            promised = (shard.get("raw_data") or {}).get("bytes")
            if not len(content) == places[-1] == promised:
                raise CorpusError(
                    f"{file} holds {len(content):,} bytes; {litdata.INDEX} promises {promised:,}. It was "
                    f"probably cut while it was copied; copy it again."
                )
            rows = [
                _decode_mds(_cut_mds(content[first:last], shard, name), kind, dtype)
                for first, last in pairwise(places)
            ]
            if rows:
                yield Rows(np.concatenate(rows), np.array(list(map(len, rows)), np.int64))

    return RowFiles(mds.NAME, dtype, (path / litdata.INDEX, *files), read, are_blocks=True)


def _find_mds_column(path: Path, shard: dict[str, Any], column: str | None) -> tuple[str, str]:
    """Return the name and the encoding of the column of tokens."""
    kinds = dict(zip(shard.get("column_names") or [], shard.get("column_encodings") or [], strict=False))
    name = column or (next(iter(kinds)) if len(kinds) == 1 else None)
    name = name or next((name for name in _COLUMNS if name in kinds), None)
    encoding = str(kinds.get(name, ""))
    if encoding.split(":", maxsplit=1)[0] not in ("bytes", "ndarray"):
        found = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
        raise CorpusError(
            f"{path} has the columns {found or 'unknown'}. Tokens are read of columns of bytes and ndarray; "
            f"pickled ones are never opened.",
            "Name a column with {column:...}.",
        )
    return str(name), encoding


def _find_mds_dtype(
    path: Path, shard: dict[str, Any], encoding: str, column: str | None, told: FormatOptions
) -> str:
    parts = encoding.split(":")
    if len(parts) > 1:
        dtype = parts[1]
    elif parts[0] == "bytes" and told.dtype is None:
        raise ConfigError(
            f"{path} holds tokens as bytes, whose type is unknown.",
            'Pass {dtype:"int64"}, which is llm-foundry\'s default, or another.',
        )
    elif parts[0] == "bytes":
        dtype = str(told.dtype)
    else:  # each row says its type; the first one is that of all
        content = _read_whole(path / _name_mds_file(path, shard), str(shard.get("compression") or ""))
        first, last = struct.unpack_from("<II", content, 4)
        row = _cut_mds(content[first:last], shard, _find_mds_column(path, shard, column)[0])
        dtype = _NDARRAY_TYPES.get(row[0], "a type of fractions")
    if dtype not in STORED_AS:
        raise CorpusError(f"{path} holds {dtype}; token ids are whole numbers.")
    return dtype


def _name_mds_file(path: Path, shard: dict[str, Any]) -> str:
    entry = (shard.get("zip_data") if shard.get("compression") else shard.get("raw_data")) or {}
    name = str(entry.get("basename"))
    if not (path / name).is_file():
        raise CorpusError(f"{path / name} is missing; {litdata.INDEX} lists it. Copy it again.")
    return name


def _cut_mds(row: bytes, shard: dict[str, Any], name: str) -> bytes:
    """Return the value of a column: a row is the sizes of columns that have no fixed one, then the values."""
    sizes, at = [], 0
    for size in shard["column_sizes"]:
        if size:
            sizes.append(int(size))
        else:
            sizes.append(*struct.unpack_from("<I", row, at))
            at += 4
    number = shard["column_names"].index(name)
    at += sum(sizes[:number])
    return row[at : at + sizes[number]]


def _decode_mds(value: bytes, encoding: str, dtype: str) -> NDArray[Any]:
    """Return the ids of a row; those of ndarray may begin with their type, and their shape.

    The byte of the shape is its dimensions times 4, plus 0 to 3 for numbers of 1, 2, 4 or 8 bytes.
    """
    kind, *fixed = encoding.split(":")
    at = 0
    if kind == "ndarray" and not fixed:
        found, at = _NDARRAY_TYPES.get(value[0]), 1
        if found != dtype:
            raise CorpusError(f"Rows are {dtype}, others {found or 'no whole numbers'}; expected one type.")
    if kind == "ndarray" and len(fixed) < 2:
        at += 1 + (value[at] >> 2) * (1 << (value[at] & 3))
    return np.frombuffer(value, np.dtype(dtype).newbyteorder("<"), offset=at)


# litData.


def _open_litdata(path: Path) -> RowFiles:
    index: dict[str, Any] = litdata.read_index(path) or {}
    compression = str(index["config"].get("compression") or "")
    dtype = litdata.check_config(path, {**index["config"], "compression": None})
    files = tuple(path / str(chunk["filename"]) for chunk in index["chunks"])
    for file in files:
        if not file.is_file():
            raise CorpusError(f"{file} is missing; {litdata.INDEX} lists it. Copy it again.")

    def read() -> Iterator[Rows]:
        for file, chunk in zip(files, index["chunks"], strict=True):
            content = _read_whole(file, compression)
            (number,) = struct.unpack_from("<I", content)
            places = np.frombuffer(content, "<u4", number + 1, 4).astype(np.int64)
            if number != chunk["chunk_size"] or places[-1] != len(content):
                raise CorpusError(
                    f"{file} does not hold the items that {litdata.INDEX} promises. Copy it again."
                )
            ids = np.frombuffer(content, np.dtype(dtype).newbyteorder("<"), offset=int(places[0]))
            yield Rows(ids, np.diff(places) // ids.itemsize)

    return RowFiles(litdata.NAME, dtype, (path / litdata.INDEX, *files), read, are_blocks=False)


def _read_whole(file: Path, compression: str) -> bytes:
    """Return the content of a file, decompressed."""
    import pyarrow as pa  # noqa: PLC0415

    kind = {"zstd": "zstd", "gz": "gzip", "bz2": "bz2", "br": "brotli"}.get(
        compression.split(":", maxsplit=1)[0]
    )
    if not compression:
        return file.read_bytes()
    if kind is None:
        raise CorpusError(f"{file} is compressed by {compression}, which is not read. Write it with zstd.")
    try:
        with pa.CompressedInputStream(pa.OSFile(str(file)), kind) as opened:
            content: bytes = opened.read()
    except (OSError, pa.ArrowInvalid) as error:
        raise CorpusError(f"{file} cannot be decompressed: {error}. Copy it again.") from None
    return content


# Levanter.


def _open_levanter(path: Path, column: str | None) -> RowFiles:
    try:
        import tensorstore as ts  # noqa: PLC0415 - not a dependency
    except ImportError:
        raise ConfigError(
            f"{path} is a cache of Levanter, which is read by the package tensorstore. Install it: pip "
            f"install tensorstore"
        ) from None
    place = path / (column or "input_ids")
    ledger = json.loads((path / _LEDGER).read_text(encoding="utf-8"))
    if ledger.get("is_finished") is False:
        raise CorpusError(f"{path} is a cache of Levanter that is not finished. Wait for it.")

    def open_array(name: str) -> Any:
        try:
            store = {"driver": "file", "path": str(place / name)}
            return ts.open({"driver": "zarr3", "kvstore": store}, read=True).result()
        except ValueError as error:
            raise CorpusError(f"{place / name} cannot be read: {error}") from None

    data, offsets = open_array("data"), open_array("offsets")

    def read() -> Iterator[Rows]:
        rows, begin = int(offsets[0].read().result()), 0
        for first in range(0, rows, _ROWS):
            # offsets holds the number of rows, then the end of each.
            ends = np.asarray(offsets[first + 1 : min(first + _ROWS, rows) + 1].read().result(), np.int64)
            ids = np.asarray(data[begin : int(ends[-1])].read().result())
            yield Rows(ids, np.diff(ends, prepend=begin))
            begin = int(ends[-1])

    return RowFiles("levanter", data.dtype.numpy_dtype.name, (path / _LEDGER,), read, are_blocks=False)
