"""Adopted files: a meta.json that names token files, says their facts, and fixes their order.

``meta.json`` has the key ``adopted``: ``version``, ``sources`` (path, what was told of it, and its identity),
``checksums`` (path -> "sha256:..." of the file, if asked for). If the files are such that every reader of
corpora can read them, it also has ``chunks``, and format_version 1. Else it has ``pieces`` (path, offset in
bytes, tokens), and format_version 2, which other readers refuse. Paths below the directory are
relative.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from tdstream.core.errors import CorpusError, TdstreamError
from tdstream.corpus.meta import META_FILE
from tdstream.formats import own
from tdstream.formats.description import (
    DelimiterEnds,
    Description,
    Ends,
    EndsRule,
    FormatOptions,
    IndexedEnds,
    Piece,
    UnknownEnds,
)
from tdstream.formats.identity import identify
from tdstream.formats.recognize import describe as describe_files

NAME = "adopted"
KEY = "adopted"
VERSION = 1


def is_adopted(directory: Path) -> bool:
    """Return whether a directory has a meta.json of adopted files."""
    try:
        content = json.loads((directory / META_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(content, dict) and isinstance(content.get(KEY), dict)


def describe(directory: Path) -> Description:
    """Return the adopted files as one stream, in their order.

    Raises CorpusError if a source is no longer what was adopted, or if meta.json is damaged or too new.
    """
    path = directory / META_FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        noted = content[KEY]
        if noted["version"] > VERSION:
            raise CorpusError(f"{path} was written by a newer tdstream. Install that.")
        told = [
            (str(one["path"]), FormatOptions(**one["told"]), dict(one["identity"]))
            for one in noted["sources"]
        ]
        checksums = {str(name): str(value) for name, value in noted.get("checksums", {}).items()}
        facts = {
            name: content[name]
            for name in ("eos_token_id", "tokenizer_name_or_path")
            if content.get(name) not in (None, "")
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorpusError(
            f"{path} does not describe adopted files ({type(error).__name__}: {error}). Run tdstream adopt "
            f"again."
        ) from None
    sources = [_describe_again(directory, name, options, identity) for name, options, identity in told]
    known = {str(find_path(directory, name)): value for name, value in checksums.items()}
    return replace(combine(directory, sources, known), facts=facts)


def find_path(directory: Path, name: str) -> Path:
    """Return the path that a name in the meta.json of a directory stands for."""
    return Path(os.path.normpath(directory / name))


def hash_file(path: Path, advance: Callable[[int], object] | None = None) -> str:
    """Return "sha256:..." of a file's bytes; `advance` is called with the bytes of each part."""
    found = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while content := file.read(1 << 24):
            found.update(content)
            if advance is not None:
                advance(len(content))
    return f"sha256:{found.hexdigest()}"


def describe_source(path: Path, told: FormatOptions) -> Description:
    """Return what lies at a path that is adopted: a corpus, or files of another tool."""
    is_corpus = (path / META_FILE).exists() and not is_adopted(path)  # which may lie among its files
    return own.describe(path) if is_corpus else describe_files(path, told)


def _describe_again(directory: Path, name: str, told: FormatOptions, identity: dict[str, Any]) -> Description:
    path = find_path(directory, name)
    try:
        source = describe_source(path, told)
    except TdstreamError as error:
        raise CorpusError(
            f"{path}, which {directory / META_FILE} adopted, cannot be read any more: {error}"
        ) from None
    now = identify(source)
    if now != identity:
        changed = ", ".join(field for field in now if now[field] != identity.get(field)) or "format"
        raise CorpusError(
            f"{path} is no longer what {directory / META_FILE} adopted: it has another {changed}. Restore "
            f"it, or run tdstream adopt again."
        )
    return source


def combine(directory: Path, sources: Sequence[Description], checksums: dict[str, str]) -> Description:
    """Return several descriptions as one stream; `checksums` are those of the files, by path, or empty."""
    dtypes = {source.dtype for source in sources}
    if len(dtypes) > 1:
        kinds = ", ".join(f"{source.path}: {source.stored_dtype}" for source in sources)
        raise CorpusError(
            f"Files of several types cannot be one stream ({kinds}). Adopt those of one type, and mix them "
            f"as sources of a mixture."
        )
    pieces = tuple(piece for source in sources for piece in source.pieces)
    _check_distinct(pieces)
    signed = next((source.stored_dtype for source in sources if source.signed), sources[0].stored_dtype)
    if checksums:
        content = "\n".join(checksums[piece.path] for piece in pieces)
    else:
        content = "\n".join(source.digest for source in sources) if len(sources) > 1 else ""
    formats = {source.format for source in sources}
    digest = hashlib.sha256(content.encode()).hexdigest()[:16] if content.strip() else ""
    return Description(
        format=NAME if len(formats) > 1 or own.NAME in formats else formats.pop(),
        path=str(directory),
        evidence=f"its {META_FILE} names the files",
        stored_dtype=signed,
        pieces=pieces,
        ends=_combine_ends(directory, sources),
        digest=digest or (sources[0].digest if len(sources) == 1 else ""),
        ends_with_token=all(source.ends_with_token for source in sources),
        checksums=checksums,
    )


def _check_distinct(pieces: Sequence[Piece]) -> None:
    places = [(os.path.realpath(piece.path), piece.offset) for piece in pieces if piece.tokens]
    seen: set[tuple[str, int]] = set()
    for place in places:
        if place in seen:
            raise CorpusError(f"{place[0]} is named twice; its tokens would be served twice. Name it once.")
        seen.add(place)


def _combine_ends(directory: Path, sources: Sequence[Description]) -> EndsRule:
    """Return one rule for the document ends of all sources."""
    rules = [source.ends for source in sources]
    unknown = next((rule for rule in rules if isinstance(rule, UnknownEnds)), None)
    if unknown is not None:
        return unknown
    first = rules[0]
    if isinstance(first, DelimiterEnds) and all(rule == first for rule in rules):
        return first
    indexed = [rule for rule in rules if isinstance(rule, IndexedEnds)]
    if len(indexed) < len(rules):
        return UnknownEnds(
            f"{directory} joins files whose documents are told by an index, and by tokens, or by several "
            f"tokens. Adopt those of one kind, and mix them as sources of a mixture."
        )
    if len(indexed) == 1:
        return indexed[0]
    borders = tuple(accumulate(len(source.pieces) for source in sources))
    files = tuple(file for rule in indexed for file in rule.files)
    number = sum(rule.num_documents for rule in indexed)
    return IndexedEnds(partial(_read_ends, tuple(rule.read for rule in indexed), borders), number, files)


def _read_ends(readers: tuple[Any, ...], borders: tuple[int, ...], piece: int) -> Ends:
    """Return the ends in a piece: with sources of 2 and 3 pieces, piece 3 is piece 1 of the second."""
    source = next(number for number, border in enumerate(borders) if piece < border)
    ends: Ends = readers[source](piece - (borders[source - 1] if source else 0))
    return ends
