"""Recognise that there is nothing left to do: the corpus that is to be resumed is complete."""

from __future__ import annotations

import logging
from typing import Any

from tdstream.corpus.held_out import read_val
from tdstream.corpus.journal import changed
from tdstream.corpus.meta import META_FILE, CorpusMeta, read_meta
from tdstream.corpus.output import check_contents
from tdstream.errors import OutputError, SourceError
from tdstream.preparation.counts import Counts
from tdstream.preparation.identity import differing, identity_of, made_from
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult

logger = logging.getLogger(__name__)

_COMPARED = ("tokenizer_fingerprint", "dtype", "eos_token_id", "tokens_per_chunk", "holdout")


def complete_result(options: PrepareOptions, plan: CorpusMeta, given: Any = None) -> PrepareResult | None:
    """Return the result of a preparation that an earlier run has completed; None if there is something to do.

    So a job that is started with ``resume`` again and again ends well however often that happens.

    Args:
        options: What was asked for.
        plan: What is known of the corpus.
        given: Records instead of the name of a dataset.

    Raises:
        OutputError: If the directory holds a corpus that this preparation cannot have written.
    """
    path = options.output_path / META_FILE
    if options.overwrite or options.append or not options.resume or not path.exists():
        return None
    check_contents(options.output_path, overwrite=True)  # nothing but a corpus
    meta = read_meta(path)
    before, now = ({name: getattr(corpus, name) for name in _COMPARED} for corpus in (meta, plan))
    if before != now:
        raise OutputError(
            f"{options.output_path} holds a complete corpus that was prepared otherwise: "
            f"{'; '.join(changed(before, now))}. Pass --overwrite to replace it, or choose another place."
        )
    _check_documents(options, plan, meta, given)
    counts = Counts(documents=max(meta.num_documents, 0), tokens=meta.total_tokens)
    val = None
    if meta.holdout:
        held_out = read_val(options.output_path)
        val = Counts(documents=held_out.num_documents, tokens=held_out.total_tokens)
    return PrepareResult(
        output_path=options.output_path, counts=counts, meta=meta, seconds=0.0, was_complete=True, val=val
    )


def _check_documents(options: PrepareOptions, plan: CorpusMeta, meta: CorpusMeta, given: Any) -> None:
    """Refuse other documents than those of a complete corpus, as far as it says which these are."""
    if not meta.made_from:
        return
    from tdstream.preparation.source import open_source  # noqa: PLC0415 - see the engine

    unknown: tuple[str, ...] = ()
    files, identity = [], {}
    try:
        with open_source(options, given) as source:
            files, identity = source.facts.files, source.facts.identity
    except SourceError as error:  # Nobody needs the texts any more that have become a corpus.
        if given is not None:
            raise
        unknown = ("files", "given")
        logger.warning("%s Whether %s was made from it cannot be told.", error, options.output_path)
    now = made_from(identity_of(options, plan, files, identity))
    names = [name for name in differing(meta.made_from, now) if name not in unknown]
    if names:
        raise OutputError(
            f"{options.output_path} holds a complete corpus that was made from another source or with other "
            f"options: {', '.join(names)} changed. Pass --append to write these documents behind those, "
            f"--overwrite to replace them, or choose another place."
        )
