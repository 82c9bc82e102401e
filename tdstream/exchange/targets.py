"""The files that other tools read, made of a corpus: which are links, which are new."""

from __future__ import annotations

import csv
import gzip
import io
import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tdstream.core.errors import ConfigError, CorpusError
from tdstream.corpus.document_ends import Ends
from tdstream.exchange.out_file import FileRange, OutFile, link_or_copy, made, slice_tokens
from tdstream.exchange.source import TokenSource
from tdstream.formats import datatrove, llmc, megatron, own
from tdstream.formats.description import IndexedEnds, Piece, UnknownEnds
from tdstream.formats.ends import read_piece

CODES = {"uint16": 8, "uint32": 4}
"""Megatron's codes: unsigned numbers of 2 bytes, signed ones of 4."""
MOST_TOKENS = (1 << 31) - 1
"""The most tokens of a shard of llm.c, and of a sequence of Megatron."""
_DOCUMENTS = 1 << 20  # at a time


@dataclass(frozen=True, slots=True)
class Target:
    """The files of another tool."""

    files: tuple[OutFile, ...]
    notes: tuple[str, ...] = ()
    """What a user should know of them."""
    below: int = 0
    """The ids must be below this; 0 for any."""


def plan_megatron(source: TokenSource, *, one_prefix: bool = False) -> Target:
    """Return Megatron's P.bin and P.idx: a prefix for each shard, or one for all."""
    description = source.description
    below = 1 << 31 if description.dtype.itemsize == 4 else 0
    _check_lengths(source, one_prefix=one_prefix)
    if one_prefix:
        files = (_one_file("tokens.bin", source), made("tokens.idx", partial(_make_idx, source, None)))
        return Target(files, ('The prefix is "tokens".',), below)
    found = []
    for number, piece in source.pieces:
        stem = source.stems[number]
        found.append(_token_file(f"{stem}.bin", source, piece))
        found.append(made(f"{stem}.idx", partial(_make_idx, source, number)))
    note = "Give Megatron all prefixes, weighted by their tokens; or join them in one, with one_prefix."
    return Target(
        tuple(found), (*_describe_cuts(source), *((note,) if len(source.pieces) > 1 else ())), below
    )


def _check_lengths(source: TokenSource, *, one_prefix: bool) -> None:
    """Refuse documents that are too long for an index of Megatron."""
    numbers = [None] if one_prefix else [number for number, _ in source.pieces]
    blocks = (lengths for number in numbers for lengths in _list_lengths(source, number))
    longest = max(int(lengths.max()) for lengths in blocks)
    if longest > MOST_TOKENS:
        raise CorpusError(
            f"{source.what} has a document of {longest:,} tokens; an index of Megatron has room for up to "
            f"{MOST_TOKENS:,}. Its end-of-text token is probably another one."
        )


def _list_lengths(source: TokenSource, number: int | None) -> Iterator[Ends]:
    """Yield the tokens of the documents in a piece, or in all as one stream, a part at a time."""
    if number is not None:
        yield np.diff(source.ends_in(number), prepend=0)
        return
    ends, before = source.ends, 0
    for first in range(0, ends.num_documents, _DOCUMENTS):
        places = ends.between(first, min(first + _DOCUMENTS, ends.num_documents))
        yield np.diff(places, prepend=before)
        before = int(places[-1])


def _make_idx(source: TokenSource, number: int | None) -> Iterator[bytes]:
    """Yield an index of Megatron: header, lengths, first bytes, and documents of one sequence each."""
    itemsize = source.description.dtype.itemsize
    count = source.ends.num_documents if number is None else len(source.ends_in(number))
    code = CODES[source.description.dtype.name]
    yield megatron.MAGIC + struct.pack("<QBQQ", 1, code, count, count + 1)
    for lengths in _list_lengths(source, number):
        yield lengths.astype("<i4").tobytes()
    done = 0
    for lengths in _list_lengths(source, number):
        firsts = np.cumsum(lengths) - lengths + done
        yield (firsts * itemsize).astype("<i8").tobytes()
        done += int(lengths.sum())
    for first in range(0, count + 1, _DOCUMENTS):
        yield np.arange(first, min(first + _DOCUMENTS, count + 1)).astype("<i8").tobytes()


def plan_datatrove(source: TokenSource) -> Target:
    """Return datatrove's X.ds, X.ds.index and X.ds.metadata for each shard."""
    files: list[OutFile] = []
    tokenizer = source.description.facts.get("tokenizer_name_or_path") or "Unknown Tokenizer"
    for number, piece in source.pieces:
        name = f"{source.stems[number]}.ds"
        index = _find_index(source, number)
        files += [
            _token_file(name, source, piece),
            made(f"{name}.index", partial(_make_ends, source, number))
            if index is None
            else link_or_copy(f"{name}.index", index, 8 * len(source.ends_in(number))),
            made(f"{name}.metadata", partial(_make_metadata, tokenizer, piece.tokens, source)),
        ]
    return Target(tuple(files), _describe_cuts(source))


def _find_index(source: TokenSource, number: int) -> str | None:
    """Return a shard's own index, if its last document ends with the shard; else None."""
    rule = source.description.ends
    if not isinstance(rule, IndexedEnds) or source.description.format not in (own.NAME, datatrove.NAME):
        return None
    with_cut, path = len(source.ends_in(number)), rule.files[number]
    return path if Path(path).stat().st_size == 8 * len(source.ends.in_part(number)) == 8 * with_cut else None


def _make_ends(source: TokenSource, number: int) -> Iterator[bytes]:
    yield source.ends_in(number).astype("<u8").tobytes()


def _make_metadata(tokenizer: str, tokens: int, source: TokenSource) -> Iterator[bytes]:
    width = source.description.dtype.itemsize
    yield f"{tokenizer}|{width}\n{tokens}\n{_in_words(tokens)}".encode()


def _in_words(tokens: int) -> str:
    """Return a number as datatrove writes it, with three digits: 3927 is 3.93 kT."""
    exponent = int(math.log10(tokens))
    value = tokens / 10 ** (exponent // 3 * 3)
    prefix = ["", "k", "M", "G", "T", "P", "E"][exponent // 3]
    return f"{value:.{2 - exponent % 3}f} {prefix}T"


def plan_olmo(source: TokenSource) -> Target:
    """Return OLMo's raw .npy and the table of documents for each shard."""
    files: list[OutFile] = []
    for number, piece in source.pieces:
        stem = source.stems[number]
        files.append(_token_file(f"{stem}.npy", source, piece))
        files.append(made(f"{stem}.csv.gz", partial(_make_table, source, number)))
    note = f"Give OLMo dtype {source.description.dtype.name}" + (
        "." if source.eos is None else f" and end-of-text id {source.eos}."
    )
    return Target(tuple(files), (*_describe_cuts(source), note))


def _make_table(source: TokenSource, number: int) -> Iterator[bytes]:
    """Yield a compressed table: start, end, id, source, and the document's number in the source."""
    packed = io.BytesIO()
    ends, name = source.ends_in(number), Path(source.description.pieces[number].path).name
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as file:
        for first in range(0, len(ends), _DOCUMENTS):
            text = io.StringIO(newline="")
            lasts = ends[first : first + _DOCUMENTS].tolist()
            starts = [int(ends[first - 1]) if first else 0, *lasts[:-1]]
            csv.writer(text, lineterminator="\n").writerows(
                (start, last, f"{name}:{first + row}", name, first + row)
                for row, (start, last) in enumerate(zip(starts, lasts, strict=True))
            )
            file.write(text.getvalue().encode())
            yield packed.getvalue()
            packed.seek(0)
            packed.truncate()
    yield packed.getvalue()


def plan_nanogpt(source: TokenSource) -> Target:
    """Return nanoGPT's train.bin, and val.bin of the held-out documents."""
    files, notes = [], []
    for name, part in (("train.bin", source), ("val.bin", _val(source))):
        if part is None:
            notes.append("There is no val.bin, as no documents were held out; nanoGPT's train.py reads one.")
            continue
        if part.description.dtype.itemsize != 2:
            raise ConfigError(
                f"{part.what} is {part.description.dtype.name}; nanoGPT reads uint16 only. Its tokenizer has "
                f"too many ids."
            )
        files.append(_one_file(name, part))
    return Target(tuple(files), tuple(notes))


def plan_llmc(source: TokenSource) -> Target:
    """Return shards of llm.c, whose documents begin with the end-of-text token; held-out ones are val."""
    files: list[OutFile] = []
    notes: list[str] = []
    for name, part in (("train", source), ("val", _val(source))):
        if part is not None:
            files += _make_shards(name, part, notes)
    return Target(tuple(files), tuple(dict.fromkeys(notes)))


def _make_shards(name: str, source: TokenSource, notes: list[str]) -> Iterator[OutFile]:
    """Yield a shard for each piece of the stream with the end-of-text token moved from the end to the front.

    Shards of 3 1 0 | 2 0, of which 0 ends documents, become 0 3 1 | 0 2: documents 0 3 1 and 0 2.
    """
    description, total = source.description, source.total
    front, last = b"", total
    if not source.is_first:
        eos = _find_marking_token(source)
        front = np.array([eos], description.dtype).tobytes()
        last = total - (_last_token(source) == eos)
        how = "moved from the end of documents to their front" + (
            ", as llm.c expects it" if last < total else ", as llm.c expects it; one was added"
        )
        notes.append(f"The end-of-text token {eos} is {how}.")
    magic, version = next(
        (magic, version) for magic, (version, kind) in llmc.MAGICS.items() if kind == description.dtype.name
    )
    added = len(front) // description.dtype.itemsize
    for number, (begin, end) in enumerate(_cut(source, last + added)):
        tokens = slice_tokens(description, max(begin - added, 0), end - added)
        header = np.zeros(llmc.HEADER // 4, "<i4")
        header[:3] = magic, version, end - begin
        lead = header.tobytes() + (front if not begin else b"")
        yield OutFile(f"{name}_{number:06d}.bin", (partial(_make_bytes, lead), *tokens))


def _find_marking_token(source: TokenSource) -> int:
    """Return the token that ends documents; refuse documents that it does not end."""
    eos, rule, what = source.eos, source.description.ends, source.what
    if eos is None:
        raise ConfigError(
            rule.ask
            if isinstance(rule, UnknownEnds)
            else f"{what} does not tell which token ends its "
            f"documents; those of llm.c begin with it. Pass eos_token_id=..."
        )
    if eos > np.iinfo(source.description.dtype).max:
        raise ConfigError(f"{what} holds ids of {source.description.dtype}, and {eos} is none.")
    if isinstance(rule, IndexedEnds) and source.description.format != own.NAME:
        for number, piece in source.pieces:
            tokens = np.memmap(piece.path, source.description.dtype, "r", piece.offset, (piece.tokens,))
            if (tokens[source.ends.in_part(number) - 1] != eos).any():
                raise CorpusError(
                    f"{what} has documents that do not end with the token {eos}, with which documents of "
                    f"llm.c begin."
                )
    return eos


def _cut(source: TokenSource, total: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last + 1 token of each shard: as the pieces are, none longer than is possible."""
    begin, until = 0, 0
    for place, (_, piece) in enumerate(source.pieces):
        until = total if place == len(source.pieces) - 1 else until + piece.tokens
        while begin < until:
            end = min(until, begin + MOST_TOKENS)
            yield begin, end
            begin = end


def _make_bytes(content: bytes) -> Iterable[bytes]:
    return (content,)


def _last_token(source: TokenSource) -> int:
    piece = source.pieces[-1][1]
    dtype = source.description.dtype
    place = piece.offset + (piece.tokens - 1) * dtype.itemsize
    last = next(read_piece(Piece(piece.path, place, 1, piece.size), source.description))
    return int(last[0])


def _val(source: TokenSource) -> TokenSource | None:
    return None if source.val is None else TokenSource(source.val, None)


def _describe_cuts(source: TokenSource) -> tuple[str, ...]:
    cut = source.count_cut()
    if not cut:
        return ()
    if cut == 1:
        return ("1 document crosses from one shard to the next; it is two documents there.",)
    return (f"{cut:,} documents cross from one shard to the next; each is two documents there.",)


def _token_file(name: str, source: TokenSource, piece: Piece) -> OutFile:
    size = piece.tokens * source.description.dtype.itemsize
    if piece.offset == 0 and size == piece.size:
        return link_or_copy(name, piece.path, size)
    return OutFile(name, (FileRange(piece.path, piece.offset, size),))


def _one_file(name: str, source: TokenSource) -> OutFile:
    """Return a file of all tokens: a link, if they are in one."""
    if len(source.pieces) == 1:
        return _token_file(name, source, source.pieces[0][1])
    return OutFile(name, tuple(slice_tokens(source.description, 0, source.total)))


TARGETS: dict[str, Callable[[TokenSource], Target]] = {
    "megatron": plan_megatron,
    "datatrove": plan_datatrove,
    "olmo": plan_olmo,
    "nanogpt": plan_nanogpt,
    "llmc": plan_llmc,
}
