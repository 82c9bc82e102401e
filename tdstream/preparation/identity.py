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

from tdstream.corpus.meta import FORMAT_VERSION, CorpusMeta
from tdstream.corpus.unfinished import unfinished
from tdstream.preparation.options import PrepareOptions

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
    record = unfinished(options.output_path, options.task) if options.resume else None
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
