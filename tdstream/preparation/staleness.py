"""Warnings that an earlier result may be of other text, where a source cannot be recognized."""

from __future__ import annotations

import time

from tdstream.core.words import count_of
from tdstream.corpus.meta import CorpusMeta
from tdstream.text.provenance import VERSION_ATTRIBUTE

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def describe_age(seconds: float) -> str:
    """Return an age in its largest unit: "3 days", "1 minute"."""
    size, unit = next((pair for pair in _UNITS if seconds >= pair[0]), _UNITS[-1])
    return count_of(max(int(seconds // size), 0), unit)


def describe_doubt(what: str, made_at: float, documents: int, tokens: int, doubt: str) -> str:
    """Return a warning that `what`, made at a time in seconds, may be of other text."""
    age = describe_age(time.time() - made_at)
    return (
        f"{what} is {age} old ({documents:,} documents, {tokens:,} tokens), and the source may yield other "
        f"text since: {doubt}. Give the function, or the dataset, an attribute {VERSION_ATTRIBUTE} that you "
        f"change with its text, and this is known."
    )


def describe_corpus_doubt(what: str, meta: CorpusMeta, doubt: str) -> str:
    """Return the same for a corpus."""
    return describe_doubt(what, meta.created_at_unix, meta.num_documents, meta.total_tokens, doubt)
