"""Fingerprint of a preparation, which must be equal to resume, and comparison with existing corpora."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, OutputError, SourceError
from tdstream.corpus.document_index import has_doc_index
from tdstream.corpus.meta import DOC_INDEX, FORMAT_VERSION, HOLDOUT_VERSION, META_FILE, CorpusMeta, read_meta
from tdstream.preparation.input_files import SortedFiles, digest_files, short_hash, sort_files
from tdstream.preparation.options import HoldoutOptions, PrepareOptions
from tdstream.preparation.result import Counts, PrepareResult
from tdstream.preparation.staleness import describe_corpus_doubt
from tdstream.text.batches import Facts
from tdstream.text.open import open_text
from tdstream.text.tokenizer import describe_tokenizer
from tdstream.writing.held_out import read_val
from tdstream.writing.journal import PROVENANCE_KEY, list_changes
from tdstream.writing.publish import check_contents
from tdstream.writing.staging import read_unfinished

logger = logging.getLogger(__name__)

APPEND_KEY = "append"
"""Key in a journal's identity for the base corpus that its shards are appended to."""
_DOCUMENTS = (
    "dataset", "data_name", "split", "text_field", "lines", "strip", "max_samples", "files", "given",
    PROVENANCE_KEY,
)  # fmt: skip
"""The parts that decide which documents there are; those that decide their tokens have keys in meta.json."""
_LIKE_BASE = ("tokenizer_fingerprint", "dtype", "eos_token_id", "tokens_per_chunk")
_LIKE_PLAN = (*_LIKE_BASE, "bos_token_id", "holdout")


def plan_corpus(options: PrepareOptions, tokenizer: Any) -> CorpusMeta:
    """Return the meta.json of a corpus as known before it is written."""
    named = options.text.given_tokenizer is None
    known = describe_tokenizer(tokenizer, options.text.tokenizer, prepend_bos=options.text.prepend_bos)
    if known["bos_token_id"] == known["eos_token_id"] and not options.output.doc_index:
        raise ConfigError(
            f"Tokenizer {options.text.tokenizer!r} has one token, {tokenizer.eos_token!r}, for the beginning "
            f"and the end of a document, so only an index of document ends can tell them apart. Leave "
            f"prepend_bos out, or prepare a corpus with an index."
        )
    return CorpusMeta(
        chunks=(),
        tokenizer_name_or_path=options.text.tokenizer if named else str(tokenizer.name_or_path),
        is_fast=bool(tokenizer.is_fast),
        tokens_per_chunk=options.output.tokens_per_chunk,
        doc_index=dict(DOC_INDEX) if options.output.doc_index else {},
        holdout=_describe_holdout(options.holdout),
        **known,
    )


def _describe_holdout(holdout: HoldoutOptions) -> dict[str, Any]:
    given = {name.removeprefix("val_"): value for name, value in holdout.asked.items()}
    return {"version": HOLDOUT_VERSION, "part": "train", **given} if given else {}


def make_identity(options: PrepareOptions, plan: CorpusMeta, facts: Facts) -> dict[str, Any]:
    """Return everything that decides the tokens of a corpus, in JSON types.

    `skip_bad` is not included: turning it on later changes nothing written before.
    """
    text, tasks = options.text, options.tasks
    return {
        "format_version": FORMAT_VERSION,
        "tokenizer": plan.tokenizer_fingerprint,
        "eos_token_id": plan.eos_token_id,
        "dtype": plan.dtype,
        "tokens_per_chunk": plan.tokens_per_chunk,
        "dataset": text.dataset,
        "data_name": text.data_name,
        "split": text.split,
        "text_field": text.text_field,
        "lines": text.lines,
        "max_samples": text.max_samples,
        "num_tasks": tasks.num_tasks,
        "task": tasks.task,
        "files": digest_files(facts.files),
        **({"given": facts.identity} if facts.identity else {}),
        # absent in older journals
        **({PROVENANCE_KEY: facts.provenance.identity} if facts.provenance.identity else {}),
        **({"strip": True} if text.strip else {}),
        **({} if plan.bos_token_id is None else {"bos_token_id": plan.bos_token_id}),
        **({"doc_index": True} if options.output.doc_index else {}),
        **options.holdout.asked,
    }


def summarize_identity(identity: dict[str, Any]) -> dict[str, str]:
    """Return `made_from` of meta.json: a hash of each part that decides the documents."""
    known = {name: identity.get(name) for name in _DOCUMENTS}
    if not identity["files"]["count"]:
        known.pop("files")
    return {name: short_hash(value) for name, value in known.items() if value not in (None, False)}


def find_differences(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of the parts that differ; with equal files, the spelling of the path is ignored."""
    if PROVENANCE_KEY not in before:  # older corpora do not record it
        now = {name: value for name, value in now.items() if name != PROVENANCE_KEY}
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    same_files = "files" in before and before["files"] == now.get("files")
    return [name for name in names if not (same_files and name == "dataset")]


def match_index(options: PrepareOptions, base: CorpusMeta | None) -> PrepareOptions:
    """Return the options with a document index only if the base, or unfinished work, has one."""
    output = options.output
    if base is not None and output.doc_index != has_doc_index(base):
        how = "with" if has_doc_index(base) else "without"
        logger.info("%s is %s an index of document ends, and stays so.", output.output_path, how)
        options = options.replace(doc_index=has_doc_index(base))
    record = read_unfinished(output.output_path, options.tasks.task) if output.resume else None
    if record is None or not options.output.doc_index or record.identity.get("doc_index"):
        return options
    logger.info("The unfinished preparation has no index of document ends; it continues without one.")
    return options.replace(doc_index=False)


def check_like_base(output: Path, base: CorpusMeta, plan: CorpusMeta) -> None:
    """Refuse to append tokens unlike the base's; warn of fields that cannot be compared."""
    # Without a fingerprint, only the name identifies the tokenizer.
    more = () if base.tokenizer_fingerprint else ("vocab_size", "tokenizer_name_or_path")
    names = (*_LIKE_BASE, *more)
    known = [name for name in names if getattr(base, name) not in (None, "", 0) or name == "eos_token_id"]
    unknown = [name for name in names if name not in known or getattr(base, name) is None]
    if unknown:
        logger.warning(
            "The %s of %s has no %s: whether that is the same cannot be checked.",
            META_FILE,
            output,
            ", ".join(unknown),
        )
    compared = [*(name for name in known if name not in unknown), "bos_token_id"]  # None means without
    before, now = ({name: getattr(meta, name) for name in compared} for meta in (base, plan))
    differences = list_changes(before, now)
    if differences:
        raise ConfigError(
            f"The corpus in {output} was prepared differently: {'; '.join(differences)}. Append with "
            f"the same settings, or make another corpus."
        )


def find_appended(
    options: PrepareOptions, base: CorpusMeta | None, identity: dict[str, Any]
) -> PrepareResult | None:
    """Return the result if an earlier run wrote these documents, else None; ConfigError without `resume`."""
    how = "" if base is None else _describe_written(options.output.output_path, base, identity)
    if base is None or not how:
        return None
    if not options.output.resume:
        raise ConfigError(f"{how}, and would be in it twice.", "With {resume} nothing is done.")
    return make_complete_result(options, base)


def _describe_written(output: Path, base: CorpusMeta, identity: dict[str, Any]) -> str:
    """Describe how these documents were written earlier; empty if they were not."""
    source = short_hash(identity)
    parts = [part for part in base.appended if part.get("source") == source]
    if parts:
        return (
            f"These documents were already appended to {output} ({parts[-1]['documents']:,}, from "
            f"{parts[-1]['first_chunk']} on)"
        )
    if base.made_from and not find_differences(base.made_from, summarize_identity(identity)):
        return f"The corpus in {output} was made from these documents: they are in it"
    return ""


def find_complete(options: PrepareOptions, plan: CorpusMeta) -> PrepareResult | None:
    """Return the result if an earlier run completed this preparation, else None.

    So a job that always passes `resume` succeeds no matter how often it is started. Raises OutputError for a
    corpus that this preparation cannot have written.
    """
    output = options.output
    path = output.output_path / META_FILE
    if output.overwrite or output.append or not output.resume or not path.exists():
        return None
    check_contents(output.output_path, overwrite=True)  # refuse anything but a corpus
    meta = read_meta(path)
    before, now = ({name: getattr(corpus, name) for name in _LIKE_PLAN} for corpus in (meta, plan))
    if before != now:
        raise OutputError(
            f"{output.output_path} holds a complete corpus that was prepared differently: "
            f"{'; '.join(list_changes(before, now))}.",
            "Pass {overwrite} to replace it, or choose another place.",
        )
    _check_documents(options, plan, meta)
    return make_complete_result(options, meta)


def make_complete_result(options: PrepareOptions, meta: CorpusMeta) -> PrepareResult:
    """Return the result of a run that has nothing to do."""
    output, val = options.output, None
    if meta.holdout and not output.append:
        held_out = read_val(output.output_path)
        val = Counts(documents=held_out.num_documents, tokens=held_out.total_tokens)
    counts = Counts(documents=max(meta.num_documents, 0), tokens=meta.total_tokens)
    return PrepareResult(
        output_path=output.output_path, counts=counts, meta=meta, seconds=0.0, was_complete=True, val=val
    )


def _check_documents(options: PrepareOptions, plan: CorpusMeta, meta: CorpusMeta) -> None:
    """Raise OutputError if a complete corpus was made from other documents, according to its meta.json."""
    if not meta.made_from:
        return
    output = options.output.output_path
    unknown: tuple[str, ...] = ()
    facts = Facts()
    try:
        with open_text(options.text, options.tasks.share) as source:
            facts = source.facts
    except SourceError as error:  # a complete corpus does not need its source any more
        if options.text.given is not None:
            raise
        unknown = ("files", "given")
        logger.warning("%s Whether %s was made from it cannot be checked.", error, output)
    doubt = facts.provenance.doubt
    if facts.provenance.identity and PROVENANCE_KEY not in meta.made_from:
        doubt = "an earlier version made the corpus, without a record of what stands behind the stream"
    if doubt:
        logger.warning(describe_corpus_doubt(f"The corpus {output}", meta, doubt))
    now = summarize_identity(make_identity(options, plan, facts))
    names = [name for name in find_differences(meta.made_from, now) if name not in unknown]
    if not names:
        return
    identity = make_identity(options, plan, facts)
    found = sort_files(facts.files, identity, meta) if facts.files else SortedFiles()
    if set(names) <= {"dataset", "files"} and found.are_all:
        return  # the others were appended
    raise OutputError(
        f"{output} holds a complete corpus that was made from another source or with other options: "
        f"{', '.join(names)} changed.{_describe_files(found)}",
        _advise_on_files(options, found),
    )


def _describe_files(found: SortedFiles) -> str:
    changed = [*(file for file, _ in found.grown), *found.changed]
    if changed:
        return f" {changed[0]} has changed since its documents were written."
    return f" {found.describe()}." if found.known and found.new else ""


def _advise_on_files(options: PrepareOptions, found: SortedFiles) -> str:
    """Return what to do about a complete corpus of other documents; no document may be written twice."""
    others = "{overwrite} to replace them, or choose another place."
    is_old = found.partial or found.grown or found.changed or (found.known and not found.new)
    if options.tasks.task is not None or options.holdout.asked or is_old:
        return f"Pass {others}"
    if found.known and found.new:
        return f"Pass {{append}} to write the documents of the new files after those, {others}"
    if not found.is_certain:
        return f"Pass {{append}}, and new files alone, to write their documents after those, {others}"
    return f"Pass {{append}} to write these documents after those, {others}"
