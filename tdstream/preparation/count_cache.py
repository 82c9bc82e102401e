"""Cache of counts of documents and tokens, so that each text is counted once."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tdstream.core.errors import TdstreamError
from tdstream.core.user_cache import read_json, user_cache, write_json
from tdstream.preparation.identity import make_identity, plan_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Counts, Observer
from tdstream.preparation.staleness import describe_doubt
from tdstream.preparation.tokenizing import Marks, Overlapped
from tdstream.schedule.windows import DocumentCut, count_samples
from tdstream.text.batches import TextBatches
from tdstream.text.encoders.select import choose_encoder
from tdstream.text.files import check_apart
from tdstream.text.open import open_text
from tdstream.text.options import TextOptions
from tdstream.text.tokenizer import get_tokenizer

logger = logging.getLogger(__name__)

_NOT_COUNTED = ("format_version", "dtype", "tokens_per_chunk", "task", "num_tasks")  # irrelevant to counts
_VERSION = 1
_counted_here: set[Path] = set()  # files of counts that this process has made


@dataclass(frozen=True, slots=True)
class CountedText:
    """Size of a text."""

    counts: Counts
    windows: int | None = None
    """Windows of single documents; None if documents are joined."""


def count_text(
    options: TextOptions, cut: DocumentCut | None, cache_dir: Path | None, observer: Observer
) -> CountedText:
    """Count the documents and tokens that a preparation would write, or recall an earlier count.

    `cut` is that of separate documents, None if documents are joined. Counts are kept in `cache_dir`, by
    default in the user's cache. A source that cannot be recognized for sure is counted each time.
    """
    if cache_dir is not None:
        check_apart(options, cache_dir)
    tokenizer = get_tokenizer(options)
    with open_text(options) as source:
        key = _make_key(options, tokenizer, source, cut)
        path = _find_file(cache_dir, key)
        earlier, doubt = _recall(path, key), source.facts.provenance.doubt
        known = earlier if not doubt else None
        if known is None:
            known = _count(source, tokenizer, options, cut, observer)
            _warn_of_change(earlier, known)
            try:
                write_json(path, {**asdict(known.counts), "windows": known.windows, "key": key})
                _counted_here.add(path)
            except OSError as error:
                logger.warning("The count is not kept, and will be made again the next time: %s", error)
    observer.end()
    return known


def _warn_of_change(earlier: CountedText | None, now: CountedText) -> None:
    if earlier is not None and earlier.counts != now.counts:
        was, found = earlier.counts, now.counts
        logger.warning(
            f"The text has changed: it had {was.documents:,} documents and {was.tokens:,} tokens when it was "
            f"counted before, and has {found.documents:,} and {found.tokens:,} now."
        )


def recall_count(
    options: TextOptions, cut: DocumentCut | None = None, cache_dir: Path | None = None, *, warns: bool = True
) -> CountedText | None:
    """Return an earlier count, if any; reads only what identifies the source.

    `warns` says whether to warn if the source may hold other text by now.
    """
    with open_text(options) as source:
        key = _make_key(options, get_tokenizer(options), source, cut)
        doubt = source.facts.provenance.doubt
    path = _find_file(cache_dir, key)
    known = _recall(path, key)
    if known is not None and warns and doubt and path not in _counted_here:
        made_at, counts = path.stat().st_mtime, known.counts
        what = f"The count of {options.dataset}"
        logger.warning(describe_doubt(what, made_at, counts.documents, counts.tokens, doubt))
    return known


def forget_count(options: TextOptions, cut: DocumentCut | None = None, cache_dir: Path | None = None) -> None:
    """Remove an earlier count, which a whole pass over the text has shown to be wrong."""
    with open_text(options) as source:
        key = _make_key(options, get_tokenizer(options), source, cut)
    with suppress(OSError):
        _find_file(cache_dir, key).unlink(missing_ok=True)


def _count(
    source: TextBatches, tokenizer: Any, options: TextOptions, cut: DocumentCut | None, observer: Observer
) -> CountedText:
    counts, windows = Counts(), 0
    observer.begin(source.total, counts, source.total_bytes)
    encoder = choose_encoder(tokenizer, options.encoder)
    marks = Marks(int(tokenizer.eos_token_id), int(tokenizer.bos_token_id) if options.prepend_bos else None)
    with closing(Overlapped(source.batches(), encoder, marks)) as blocks:
        for block in blocks:
            documents = len(block.documents.ends)
            counts += block.documents.counted(0, documents, skipped=block.num_records - documents)
            if cut is not None:
                lengths = block.documents.lengths(0, documents)
                windows += int(cut.count(lengths[cut.is_kept(lengths)] + 1).sum())
            observer.advance(block.num_records, counts, block.bytes_read)
    observer.end()
    return CountedText(counts, None if cut is None else windows)


def _make_key(
    options: TextOptions, tokenizer: Any, source: TextBatches, cut: DocumentCut | None
) -> dict[str, Any]:
    """Return everything that decides a count, in JSON types."""
    prepared = PrepareOptions(text=options)
    identity = make_identity(prepared, plan_corpus(prepared, tokenizer), source.facts)
    decisive = {name: value for name, value in identity.items() if name not in _NOT_COUNTED}
    windows = {} if cut is None else {"windows": [cut.seq_len, cut.stride, cut.min_tail]}
    return {"version": _VERSION, "skip_bad": options.skip_bad, **windows, **decisive}


def _find_file(cache_dir: Path | None, key: dict[str, Any]) -> Path:
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()
    return (user_cache("counts") if cache_dir is None else cache_dir) / f"count-{name[:32]}.json"


def _recall(path: Path, key: dict[str, Any]) -> CountedText | None:
    try:
        content = read_json(path)
        if content["key"] != key:
            return None
        counts = Counts.from_json(content)
        windows = int(content["windows"]) if "windows" in key else None
        fits = all(isinstance(value, (int, float)) for value in asdict(counts).values())
        return CountedText(counts, windows) if fits else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def known_samples(
    text: TextOptions, *, cut: DocumentCut | None, seq_len: int, stride: int, warns: bool = True
) -> int | None:
    """Return the number of samples in a text; None if it was never counted.

    Reads the first records of a source that is no dataset, to recognize it.
    """
    try:
        known = recall_count(text, cut, warns=warns)
    except TdstreamError as error:
        logger.debug("No earlier count of this text can be looked up: %s", error)
        return None
    if known is None or cut is not None:
        return None if known is None else known.windows
    return count_samples(known.counts.tokens, seq_len, stride)
