"""Count documents and tokens without writing them, once: the next time the answer lies in a small file."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdstream.corpus.meta import CorpusMeta
from tdstream.preparation.blocks import Overlapped
from tdstream.preparation.counts import Counts
from tdstream.preparation.encoder_choice import choose_encoder
from tdstream.preparation.engine import Inputs
from tdstream.preparation.identity import identity_of
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.records import TextSource
from tdstream.preparation.result import Observer
from tdstream.preparation.source import open_source
from tdstream.preparation.tokenizer import load_tokenizer, own_tokenizer, plan_corpus
from tdstream.usercache import read_json, user_cache, write_json
from tdstream.windows import DocumentCut

logger = logging.getLogger(__name__)

_OF_CORPORA = ("format_version", "dtype", "tokens_per_chunk", "task", "num_tasks")  # what no count depends on
_VERSION = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """What a text holds, and gives."""

    counts: Counts
    """Its documents and tokens."""
    windows: int | None = None
    """Windows of single documents; None where documents are joined, and tokens tell."""


def count_text(
    options: PrepareOptions,
    inputs: Inputs,
    cut: DocumentCut | None,
    cache_dir: Path | None,
    observer: Observer,
) -> Counted:
    """Count the documents and tokens that a preparation would write, or recall an earlier count.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cut: How each document is cut by itself; None where documents are joined.
        cache_dir: Where counts are kept; None for the user's cache.
        observer: Told how far it is.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    given = inputs.tokenizer
    tokenizer = load_tokenizer(options.tokenizer) if given is None else own_tokenizer(given)
    plan = plan_corpus(options, tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source, cut)
        path = _path(_directory(cache_dir), key)
        known = _recall(path, key)
        if known is None:
            known = _count(source, tokenizer, plan, options, cut, observer)
            _keep(path, key, known)
    observer.end()
    return known


def recall_count(
    options: PrepareOptions, inputs: Inputs, cut: DocumentCut | None = None, cache_dir: Path | None = None
) -> Counted | None:
    """Return what was counted before, or None; no more is read than tells a source from others.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cut: As `count_text`.
        cache_dir: Where counts are kept; None for the user's cache.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    plan = plan_corpus(options, inputs.tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source, cut)
    return _recall(_path(_directory(cache_dir), key), key)


def _count(
    source: TextSource,
    tokenizer: Any,
    plan: CorpusMeta,
    options: PrepareOptions,
    cut: DocumentCut | None,
    observer: Observer,
) -> Counted:
    counts, windows = Counts(), 0
    observer.begin(source.total, counts)
    encoder = choose_encoder(tokenizer, options.encoder)
    with closing(Overlapped(source.batches(), encoder, plan.eos_token_id or 0)) as blocks:
        for block in blocks:
            documents = len(block.documents.ends)
            counts += block.documents.counted(0, documents, skipped=block.num_records - documents)
            windows += 0 if cut is None else _windows(block.documents.lengths(0, documents), cut)
            observer.advance(block.num_records, counts)
    return Counted(counts, None if cut is None else windows)


def _windows(lengths: NDArray[np.int64], cut: DocumentCut) -> int:
    """Return the windows of documents of so many tokens of their own."""
    return int(cut.count(lengths[cut.is_kept(lengths)] + 1).sum())


def _key(
    options: PrepareOptions, plan: CorpusMeta, source: TextSource, cut: DocumentCut | None
) -> dict[str, Any]:
    """Return what decides a count, in JSON types."""
    identity = identity_of(options, plan, source.facts.files, source.facts.identity)
    decisive = {name: value for name, value in identity.items() if name not in _OF_CORPORA}
    windows = {} if cut is None else {"windows": [cut.seq_len, cut.stride, cut.min_tail]}
    return {"version": _VERSION, "skip_bad": options.skip_bad, **windows, **decisive}


def _directory(cache_dir: Path | None) -> Path:
    return user_cache("counts") if cache_dir is None else cache_dir


def _path(directory: Path, key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return directory / f"count-{name[:32]}.json"


def _recall(path: Path, key: dict[str, Any]) -> Counted | None:
    try:
        content = read_json(path)
        if content["key"] != key:
            return None
        counts = Counts.from_json(content)
        windows = int(content["windows"]) if "windows" in key else None
        fits = all(isinstance(value, (int, float)) for value in asdict(counts).values())
        return Counted(counts, windows) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, key: dict[str, Any], counted: Counted) -> None:
    try:
        write_json(path, {**asdict(counted.counts), "windows": counted.windows, "key": key})
    except OSError as error:
        logger.warning("The count is not kept, and will be made again the next time: %s", error)
