"""Name everything that decides the tokens of a corpus, so that only the same preparation is gone on with."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError, OutputError, SourceError
from tdstream.corpus.document_index import has_doc_index
from tdstream.corpus.meta import FORMAT_VERSION, META_FILE, CorpusMeta, read_meta
from tdstream.preparation.result import Counts, PrepareResult
from tdstream.text.options import PrepareOptions
from tdstream.writing.append import base_identity, check_base
from tdstream.writing.held_out import read_val
from tdstream.writing.journal import list_changes
from tdstream.writing.publish import check_contents
from tdstream.writing.staging import read_unfinished

_HELD_OUT = ("val_fraction", "val_documents")
_DOCUMENTS = (
    "dataset", "data_name", "split", "text_field", "lines", "strip", "max_samples", "files", "given"
)  # fmt: skip
"""What decides which documents there are; what is made of them is in meta.json under names of its own."""

logger = logging.getLogger(__name__)


def identity_of(
    options: PrepareOptions, plan: CorpusMeta, files: list[str], given: dict[str, Any]
) -> dict[str, Any]:
    """Return what decides the tokens, in JSON types.

    Whether bad records are skipped is not part of it: turned on, it changes nothing that lies behind.

    Args:
        options: What was asked for.
        plan: What is known of the corpus, the tokenizer among it.
        files: What the dataset is read from.
        given: What tells the dataset from others where it is no files; empty where it is.
    """
    return {
        "format_version": FORMAT_VERSION,
        "tokenizer": plan.tokenizer_fingerprint,
        "eos_token_id": plan.eos_token_id,
        "dtype": plan.dtype,
        "tokens_per_chunk": plan.tokens_per_chunk,
        "dataset": options.dataset,
        "data_name": options.data_name,
        "split": options.split,
        "text_field": options.text_field,
        "lines": options.lines,
        "max_samples": options.max_samples,
        "num_tasks": options.num_tasks,
        "task": options.task,
        "files": _digest(files),
        **({"given": given} if given else {}),
        # Older journals know nothing of these.
        **({"strip": True} if options.strip else {}),
        **({"doc_index": True} if options.doc_index else {}),
        **{name: getattr(options, name) for name in _HELD_OUT if getattr(options, name) is not None},
    }


def made_from(identity: dict[str, Any]) -> dict[str, str]:
    """Return for meta.json what documents are made from: a hash of each part, by its name.

    It does not depend on how the work was divided into tasks.

    Args:
        identity: What decides the tokens.
    """
    known = {name: identity.get(name) for name in _DOCUMENTS}
    if not identity["files"]["count"]:
        known.pop("files")
    return {name: short_hash(value) for name, value in known.items() if value not in (None, False)}


def differing(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the names of what differs in what documents are made from.

    The same files are the same dataset, however that is spelled.

    Args:
        before: What a meta.json says.
        now: What is asked for.
    """
    names = [name for name in dict.fromkeys([*before, *now]) if before.get(name) != now.get(name)]
    same_files = "files" in before and before["files"] == now.get("files")
    return [name for name in names if not (same_files and name == "dataset")]


def short_hash(value: Any) -> str:
    """Return a hash of JSON types, 16 hexadecimal digits."""
    content = json.dumps(value, sort_keys=True).encode("utf-8", "surrogateescape")
    return hashlib.sha256(content).hexdigest()[:16]


def as_begun(options: PrepareOptions) -> PrepareOptions:
    """Return the options of a preparation that goes on: without an index where it was begun without one.

    Args:
        options: What was asked for.
    """
    record = read_unfinished(options.output_path, options.task) if options.resume else None
    if record is None or not options.doc_index or record.identity.get("doc_index"):
        return options
    logger.info("The unfinished preparation has no index of document ends; it goes on without one.")
    return replace(options, doc_index=False)


def _digest(files: Iterable[str]) -> dict[str, Any]:
    """Return the number of files, their bytes, and a hash of their names, sizes and times of change."""
    known = [_facts(file) for file in files]
    content = json.dumps(known).encode("utf-8", "surrogateescape")
    return {
        "count": len(known),
        "bytes": sum(size for _, size, _ in known),
        "sha256": hashlib.sha256(content).hexdigest()[:16],
    }


def _facts(file: str) -> tuple[str, int, int]:
    try:
        facts = Path(file).stat()
    except OSError:  # On the hub, where the address holds the revision.
        return file, 0, 0
    return os.path.normpath(file), facts.st_size, facts.st_mtime_ns


IDENTITY_KEY = "append"
"""Where a journal says which corpus its shards are for."""
_SAME_AS_BASE = ("tokenizer_fingerprint", "vocab_size", "dtype", "eos_token_id", "tokens_per_chunk")


def base_of(options: PrepareOptions) -> CorpusMeta | None:
    """Return the corpus that is to be appended to; None if a new one is to be made.

    Args:
        options: What was asked for.

    Raises:
        OutputError: If there is none, or it is not whole.
    """
    return check_base(options.output_path) if options.append else None


def like_base(options: PrepareOptions, base: CorpusMeta | None) -> PrepareOptions:
    """Return the options with an index of document ends where the corpus has one, and only there.

    Args:
        options: What was asked for.
        base: The corpus that is to be appended to.
    """
    if base is None or options.doc_index == has_doc_index(base):
        return options
    how = "with" if has_doc_index(base) else "without"
    logger.info("%s is %s an index of document ends, and goes on so.", options.output_path, how)
    return replace(options, doc_index=has_doc_index(base))


def check_like_base(options: PrepareOptions, base: CorpusMeta, plan: CorpusMeta) -> None:
    """Refuse to append tokens of another kind; say what cannot be compared.

    Args:
        options: What was asked for.
        base: The corpus that is to be appended to.
        plan: What is known of what is to be appended.

    Raises:
        ConfigError: If something differs.
    """
    # Without a fingerprint the name is all that tells of the tokenizer.
    names = (*_SAME_AS_BASE, *([] if base.tokenizer_fingerprint else ["tokenizer_name_or_path"]))
    known = [name for name in names if getattr(base, name) not in (None, "", 0) or name == "eos_token_id"]
    unknown = [name for name in names if name not in known or getattr(base, name) is None]
    if unknown:
        logger.warning(
            "The %s of %s does not say %s: whether that is the same cannot be told.",
            META_FILE,
            options.output_path,
            ", ".join(unknown),
        )
    compared = [name for name in known if name not in unknown]
    before, now = ({name: getattr(meta, name) for name in compared} for meta in (base, plan))
    differences = list_changes(before, now)
    if differences:
        raise ConfigError(
            f"The corpus in {options.output_path} was prepared otherwise: {'; '.join(differences)}. Append "
            f"with what it was prepared with, or make another corpus."
        )


def source_hash(identity: dict[str, Any]) -> str:
    """Return a hash of what documents are made from.

    Args:
        identity: What decides their tokens, whatever they are appended to.
    """
    return short_hash(identity)


def with_base(identity: dict[str, Any], base: CorpusMeta | None) -> dict[str, Any]:
    """Return an identity that names the corpus that is appended to.

    Args:
        identity: What decides the tokens.
        base: That corpus; None where there is none.
    """
    return identity if base is None else {**identity, IDENTITY_KEY: base_identity(base)}


def appended_before(
    options: PrepareOptions, base: CorpusMeta | None, identity: dict[str, Any]
) -> PrepareResult | None:
    """Return the result if an earlier run has written the very same documents; None if there is none.

    Args:
        options: What was asked for.
        base: The corpus that is to be appended to.
        identity: What decides the tokens.

    Raises:
        ConfigError: If there is one, and it was not asked to resume.
    """
    how = "" if base is None else _how_written(options, base, identity)
    if base is None or not how:
        return None
    if not options.resume:
        raise ConfigError(f"{how}, and would be in it twice. With --resume nothing is done.")
    counts = Counts(documents=max(base.num_documents, 0), tokens=base.total_tokens)
    return PrepareResult(
        output_path=options.output_path, counts=counts, meta=base, seconds=0.0, was_complete=True
    )


def _how_written(options: PrepareOptions, base: CorpusMeta, identity: dict[str, Any]) -> str:
    """Return the beginning of a sentence on how the very same documents were written; empty if not at all."""
    source = source_hash(identity)
    parts = [part for part in base.appended if part.get("source") == source]
    if parts:
        return (
            f"These very documents were appended to {options.output_path} before "
            f"({parts[-1]['documents']:,}, from {parts[-1]['first_chunk']} on)"
        )
    if base.made_from and not differing(base.made_from, made_from(identity)):
        return f"The corpus in {options.output_path} was made from these very documents: they are in it"
    return ""


_SAME_AS_PLAN = ("tokenizer_fingerprint", "dtype", "eos_token_id", "tokens_per_chunk", "holdout")


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
    before, now = ({name: getattr(corpus, name) for name in _SAME_AS_PLAN} for corpus in (meta, plan))
    if before != now:
        raise OutputError(
            f"{options.output_path} holds a complete corpus that was prepared otherwise: "
            f"{'; '.join(list_changes(before, now))}.",
            "Pass {overwrite} to replace it, or choose another place.",
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
    from tdstream.text.open import open_source  # noqa: PLC0415 - see the engine

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
