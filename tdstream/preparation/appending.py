"""Append to a corpus only what is made as it was made, and the same documents only once."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

from tdstream.corpus.base import base_identity, check_base
from tdstream.corpus.doc_index import has_doc_index
from tdstream.corpus.journal import changed
from tdstream.corpus.meta import META_FILE, CorpusMeta
from tdstream.errors import ConfigError
from tdstream.preparation.counts import Counts
from tdstream.preparation.identity import differing, made_from, short_hash
from tdstream.preparation.options import PrepareOptions
from tdstream.preparation.result import PrepareResult

logger = logging.getLogger(__name__)

IDENTITY_KEY = "append"
"""Where a journal says which corpus its shards are for."""
_COMPARED = ("tokenizer_fingerprint", "vocab_size", "dtype", "eos_token_id", "tokens_per_chunk")


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
    names = (*_COMPARED, *([] if base.tokenizer_fingerprint else ["tokenizer_name_or_path"]))
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
    differences = changed(before, now)
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
