"""Count documents and tokens without writing them, once: the next time the answer lies in a small file."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

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

logger = logging.getLogger(__name__)

_OF_CORPORA = ("format_version", "dtype", "tokens_per_chunk", "task", "num_tasks")  # what no count depends on
_VERSION = 1


def count_text(options: PrepareOptions, inputs: Inputs, cache_dir: Path | None, observer: Observer) -> Counts:
    """Count the documents and tokens that a preparation would write, or recall an earlier count.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cache_dir: Where counts are kept; None for the user's cache.
        observer: Told how far it is.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    given = inputs.tokenizer
    tokenizer = load_tokenizer(options.tokenizer) if given is None else own_tokenizer(given)
    plan = plan_corpus(options, tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source)
        path = _path(_directory(cache_dir), key)
        known = _recall(path, key)
        if known is None:
            known = _count(source, tokenizer, plan, options, observer)
            _keep(path, key, known)
    observer.end()
    return known


def recall_count(options: PrepareOptions, inputs: Inputs, cache_dir: Path | None = None) -> Counts | None:
    """Return what was counted before, or None; no more is read than tells a source from others.

    Args:
        options: What to read, and how to tokenize it.
        inputs: A dataset and a tokenizer in hand.
        cache_dir: Where counts are kept; None for the user's cache.

    Raises:
        TdstreamError: If the text cannot be read, or the tokenizer cannot be used.
    """
    plan = plan_corpus(options, inputs.tokenizer)
    with open_source(options, inputs.source) as source:
        key = _key(options, plan, source)
    return _recall(_path(_directory(cache_dir), key), key)


def _count(
    source: TextSource, tokenizer: Any, plan: CorpusMeta, options: PrepareOptions, observer: Observer
) -> Counts:
    counts = Counts()
    observer.begin(source.total, counts)
    encoder = choose_encoder(tokenizer, options.encoder)
    with closing(Overlapped(source.batches(), encoder, plan.eos_token_id or 0)) as blocks:
        for block in blocks:
            documents = len(block.documents.ends)
            counts += block.documents.counted(0, documents, skipped=block.num_records - documents)
            observer.advance(block.num_records, counts)
    return counts


def _key(options: PrepareOptions, plan: CorpusMeta, source: TextSource) -> dict[str, Any]:
    """Return what decides a count, in JSON types."""
    identity = identity_of(options, plan, source.facts.files, source.facts.identity)
    decisive = {name: value for name, value in identity.items() if name not in _OF_CORPORA}
    return {"version": _VERSION, "skip_bad": options.skip_bad, **decisive}


def _directory(cache_dir: Path | None) -> Path:
    return user_cache("counts") if cache_dir is None else cache_dir


def _path(directory: Path, key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return directory / f"count-{name[:32]}.json"


def _recall(path: Path, key: dict[str, Any]) -> Counts | None:
    try:
        content = read_json(path)
        if content["key"] != key:
            return None
        counts = Counts.from_json(content)
        return counts if all(isinstance(value, (int, float)) for value in asdict(counts).values()) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, key: dict[str, Any], counts: Counts) -> None:
    try:
        write_json(path, {**asdict(counts), "key": key})
    except OSError as error:
        logger.warning("The count is not kept, and will be made again the next time: %s", error)
