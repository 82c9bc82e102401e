"""Prepare a dataset once for all who ask: the first one does the work, the others wait for it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import OutputError, TdstreamError
from tdstream.corpus.meta import META_FILE
from tdstream.preparation.engine import Inputs, prepare_corpus
from tdstream.preparation.identity import identity_of
from tdstream.preparation.result import Observer
from tdstream.text.open import open_source
from tdstream.text.options import PrepareOptions
from tdstream.text.tokenizer import load_tokenizer, own_tokenizer, plan_corpus
from tdstream.writing.locks import is_locked, take_lock
from tdstream.writing.publish import explain_os_errors

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5
_GRACE_SECONDS = 10.0  # in which rank 0 comes to begin, before another rank does
_SAY_SECONDS = 60.0


def cached_corpus(
    options: PrepareOptions,
    inputs: Inputs,
    cache_dir: Path,
    *,
    goes_first: bool,
    observe: Callable[[], Observer],
) -> Path:
    """Return the directory of a dataset's corpus, after preparing it, or waiting for whoever does.

    Who prepares holds a lock, which is gone when its process is; then the next one takes over, and goes on
    with what is safe on disk.

    Args:
        options: What to read, and how to tokenize it; where to write it is decided here.
        inputs: A dataset and a tokenizer in hand.
        cache_dir: The directory for corpora; each has a name made of what decides its tokens.
        goes_first: Whether to begin at once if nobody does; others give those that do some time.
        observe: Returns who is told how far it is; called by the one who prepares.

    Raises:
        TdstreamError: If the corpus cannot be prepared.
    """
    corpus = cache_dir / _name(options, inputs)
    lock = cache_dir / f".{corpus.name}"
    begun = said = time.monotonic()
    while not (corpus / META_FILE).exists():
        now = time.monotonic()
        with explain_os_errors(cache_dir):
            waits = not goes_first and now - begun < _GRACE_SECONDS and not is_locked(lock)
            descriptor = None if waits else _locked(lock, corpus)
        if descriptor is not None:
            try:
                _prepare(replace(options, output_path=corpus, resume=True), inputs, observe())
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


def _prepare(options: PrepareOptions, inputs: Inputs, observer: Observer) -> None:
    if not (options.output_path / META_FILE).exists():  # another may have been quicker
        logger.info("Preparing %s, once.", options.output_path)
        try:
            prepare_corpus(options, observer, inputs)
        except TdstreamError as error:
            if "overwrite" in error.options:  # the caller did not choose the place
                error.add_hint("Here: remove {place}.", place=options.output_path)
            raise


def _name(options: PrepareOptions, inputs: Inputs) -> str:
    """Return a name for a corpus: a hash of everything that decides its tokens."""
    given = inputs.tokenizer
    plan = plan_corpus(options, load_tokenizer(options.tokenizer) if given is None else own_tokenizer(given))
    with open_source(options, inputs.source) as source:
        identity: dict[str, Any] = identity_of(options, plan, source.facts.files, source.facts.identity)
    content = json.dumps(identity, sort_keys=True).encode("utf-8", "surrogatepass")
    return hashlib.sha256(content).hexdigest()[:24]
