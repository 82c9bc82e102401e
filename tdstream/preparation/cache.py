"""Cache of prepared corpora: one process prepares a text on first use, the others wait."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path

from tdstream.core.errors import TdstreamError
from tdstream.corpus.meta import META_FILE, read_meta
from tdstream.distributed.file_lock import Lock, describe_holder
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.identity import make_identity, plan_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Observer
from tdstream.preparation.staleness import describe_corpus_doubt
from tdstream.text.open import open_text
from tdstream.text.options import TextOptions
from tdstream.text.tokenizer import get_tokenizer
from tdstream.writing.locks import LOCK_FILE, LockedError, is_locked, take_lock
from tdstream.writing.publish import explain_os_errors

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0  # for rank 0 to start before another rank does
_FIRST_WORD_SECONDS = 5.0
_LOG_SECONDS = 60.0


def cached_corpus(
    text: TextOptions, cache_dir: Path, *, goes_first: bool, observe: Callable[[], Observer]
) -> Path:
    """Return the directory of a text's corpus in `cache_dir`, after preparing it or waiting for it.

    The preparing process holds a lock. If it dies, the kernel releases the lock, and the next process resumes
    after the safe shards. A process with `goes_first` starts at once; the others give it a few seconds. Only
    the preparing process calls `observe`.
    """
    name, doubt = _make_name(text)
    corpus = cache_dir / name
    if doubt and goes_first and (corpus / META_FILE).exists():
        _warn_of_age(corpus, doubt)
    lock = cache_dir / f".{corpus.name}"
    begun = time.monotonic()
    next_word = begun + _FIRST_WORD_SECONDS
    while not (corpus / META_FILE).exists():
        now = time.monotonic()
        with explain_os_errors(cache_dir):
            waits = not goes_first and now - begun < _GRACE_SECONDS and not is_locked(lock)
            held = None if waits else _try_lock(lock, corpus)
        if held is not None:
            try:
                _prepare(text, corpus, observe())
            finally:
                held.close()
            break
        if now >= next_word:
            next_word = now + _LOG_SECONDS
            holder = "the first rank" if waits else describe_holder(lock / LOCK_FILE)
            logger.warning("Waiting for the process that prepares %s (%s).", corpus, holder)
        time.sleep(_POLL_SECONDS)
    return corpus


def _try_lock(lock: Path, corpus: Path) -> Lock | None:
    """Return the lock; None if another process holds it."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        return take_lock(lock, corpus)
    except LockedError:
        return None


def _prepare(text: TextOptions, corpus: Path, observer: Observer) -> None:
    if (corpus / META_FILE).exists():  # another process was quicker
        return
    logger.info("Preparing %s, once.", corpus)
    try:
        prepare_corpus(PrepareOptions(text=text).replace(output_path=corpus, resume=True), observer)
    except TdstreamError as error:
        if "overwrite" in error.options:  # the caller did not choose the place
            error.add_hint("Here: remove {place}.", place=corpus)
        raise


def _warn_of_age(corpus: Path, doubt: str) -> None:
    warning = describe_corpus_doubt(f"The corpus {corpus}", read_meta(corpus / META_FILE), doubt)
    logger.warning("%s Remove the directory to prepare the text again.", warning)


def _make_name(text: TextOptions) -> tuple[str, str]:
    """Return the name of a corpus, a hash of all that decides its tokens, and what is in doubt."""
    options = PrepareOptions(text=text)
    plan = plan_corpus(options, get_tokenizer(text))
    with open_text(text) as source:
        identity, doubt = make_identity(options, plan, source.facts), source.facts.provenance.doubt
    content = json.dumps(identity, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:24], doubt
