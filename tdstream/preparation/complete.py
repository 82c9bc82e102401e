"""Recognise that there is nothing left to do: the corpus that is to be resumed is complete."""

from __future__ import annotations

from tdstream.corpus.held_out import read_val
from tdstream.corpus.journal import changed
from tdstream.corpus.meta import META_FILE, CorpusMeta, read_meta
from tdstream.corpus.output import check_contents
from tdstream.errors import OutputError
from tdstream.preparation.counts import Counts
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult

_COMPARED = ("tokenizer_fingerprint", "dtype", "eos_token_id", "tokens_per_chunk", "holdout")


def complete_result(options: PrepareOptions, plan: CorpusMeta) -> PrepareResult | None:
    """Return the result of a preparation that an earlier run has completed; None if there is something to do.

    So a job that is started with ``resume`` again and again ends well however often that happens.

    Args:
        options: What was asked for.
        plan: What is known of the corpus.

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
    counts = Counts(documents=max(meta.num_documents, 0), tokens=meta.total_tokens)
    val = None
    if meta.holdout:
        held_out = read_val(options.output_path)
        val = Counts(documents=held_out.num_documents, tokens=held_out.total_tokens)
    return PrepareResult(
        output_path=options.output_path, counts=counts, meta=meta, seconds=0.0, was_complete=True, val=val
    )
