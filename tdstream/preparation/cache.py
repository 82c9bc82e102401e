"""Corpora made of text on first use: one process prepares, the others wait for it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path

from tdstream.core.errors import OutputError, TdstreamError
from tdstream.corpus.meta import META_FILE
from tdstream.preparation.engine import prepare_corpus
from tdstream.preparation.identity import make_identity, plan_corpus
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import Observer
from tdstream.text.open import open_text
from tdstream.text.options import TextOptions
from tdstream.text.tokenizer import get_tokenizer
from tdstream.writing.locks import is_locked, take_lock
from tdstream.writing.publish import explain_os_errors

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0  # in which rank 0 comes to begin, before another rank does
_SAY_SECONDS = 60.0


def cached_corpus(
    text: TextOptions, cache_dir: Path, *, goes_first: bool, observe: Callable[[], Observer]
) -> Path:
    """Return the directory of a text's corpus in `cache_dir`, after preparing it, or waiting for it.

    The process that prepares holds a lock, which the system drops when the process ends; the next one then
    continues after what is safe on disk. With `goes_first` a process begins at once if no other has; the
    others wait a while for it. `observe` is called by the process that prepares.
    """
    corpus = cache_dir / _name(text)
    lock = cache_dir / f".{corpus.name}"
    begun = said = time.monotonic()
    while not (corpus / META_FILE).exists():
        now = time.monotonic()
        with explain_os_errors(cache_dir):
            waits = not goes_first and now - begun < _GRACE_SECONDS and not is_locked(lock)
            descriptor = None if waits else _locked(lock, corpus)
        if descriptor is not None:
            try:
                _prepare(text, corpus, observe())
            finally:
                os.close(descriptor)
            break
        if now - said >= _SAY_SECONDS or said == begun:
            said = now
            logger.info("Waiting for the process that prepares %s.", corpus)
        time.sleep(_POLL_SECONDS)
    return corpus


def _locked(lock: Path, corpus: Path) -> int | None:
    """Return the descriptor that holds the lock; None if another process does."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    try:
        return take_lock(lock, corpus)
    except OutputError:
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


def _name(text: TextOptions) -> str:
    """Return a name for a corpus: a hash of everything that decides its tokens."""
    options = PrepareOptions(text=text)
    plan = plan_corpus(options, get_tokenizer(text))
    with open_text(text) as source:
        identity = make_identity(options, plan, source.facts)
    content = json.dumps(identity, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:24]
